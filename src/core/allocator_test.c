/* Tests which blocks the allocator caches, and which it returns to the source. */
#include "core/allocator.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct source {
    int taken, left; /* blocks ever asked for; blocks not yet given back */
} source;

static void *take(void *self, size_t bytes)
{
    source *s = self;
    void *data = test_malloc(bytes);
    s->taken++;
    s->left++;
    return data;
}

static void give_back(void *self, void *data)
{
    source *s = self;
    s->left--;
    test_free(data);
}

static lk_allocator *new_allocator(source *s)
{
    lk_allocator *allocator = NULL;
    *s = (source){0};
    assert_int_equal(lk__allocator_new((lk_memory_source){take, give_back, s, false}, &allocator), LK_OK);
    return allocator;
}

static lk_block *get(lk_allocator *allocator, size_t bytes)
{
    lk_block *block = NULL;
    assert_int_equal(lk__allocator_get(allocator, bytes, &block), LK_OK);
    assert_true(block->size >= bytes);
    return block;
}

static int64_t bytes_out(lk_allocator *allocator, int64_t *peak)
{
    int64_t now;
    lk__allocator_stats(allocator, &now, peak);
    return now;
}

static void test_what_is_put_is_handed_out_again(void **state)
{
    (void)state;
    source s;
    lk_allocator *allocator = new_allocator(&s);
    lk_block *first = get(allocator, 1000);
    lk__allocator_put(allocator, first);
    assert_ptr_equal(get(allocator, 900), first);
    assert_int_equal(s.taken, 1);
    lk__allocator_put(allocator, first);
    lk__allocator_put(allocator, NULL);
    lk__allocator_free(allocator);
    assert_int_equal(s.left, 0);
}

static void test_what_is_dropped_goes_back(void **state)
{
    (void)state;
    source s;
    int64_t peak;
    lk_allocator *allocator = new_allocator(&s);
    lk__allocator_drop(allocator, get(allocator, 1000));
    lk__allocator_drop(allocator, NULL);
    assert_int_equal(s.left, 0);
    assert_int_equal(bytes_out(allocator, &peak), 0);
    assert_int_equal(peak, 1024);
    lk__allocator_put(allocator, get(allocator, 1000));
    assert_int_equal(s.taken, 2);
    lk__allocator_free(allocator);
    assert_int_equal(s.left, 0);
}

static void test_trimming_leaves_what_is_in_use(void **state)
{
    (void)state;
    source s;
    int64_t peak;
    lk_allocator *allocator = new_allocator(&s);
    lk_block *used = get(allocator, 256), *cached = get(allocator, 512);
    lk__allocator_put(allocator, cached);
    lk__allocator_trim(allocator);
    assert_int_equal(s.left, 1);
    assert_int_equal(bytes_out(allocator, &peak), 256);
    lk__allocator_put(allocator, used);
    lk__allocator_free(allocator);
    assert_int_equal(s.left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_is_handed_out_again),
        cmocka_unit_test(test_what_is_dropped_goes_back),
        cmocka_unit_test(test_trimming_leaves_what_is_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
