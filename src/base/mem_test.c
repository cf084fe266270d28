#include "base/mem.h"

#include "lockstep/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int prepare(void **state)
{
    (void)state;
    lk_error_clear();
    lk__mem_fail_at(-1);
    return 0;
}

static void test_memory_is_zeroed(void **state)
{
    (void)state;
    static const char zeros[1000];
    char *memory = lk__calloc(10, 100);
    assert_memory_equal(memory, zeros, 1000);
    lk__free(memory);
    lk__free(NULL);
    lk__free_aligned(NULL);
}

static void test_nothing_is_an_allocation(void **state)
{
    (void)state;
    void *memory[] = {lk__calloc(0, 8), lk__realloc(NULL, 0, 8)};
    void *aligned = lk__alloc_aligned(0);
    assert_non_null(memory[0]);
    assert_non_null(memory[1]);
    assert_non_null(aligned);
    lk__free(memory[0]);
    lk__free(memory[1]);
    lk__free_aligned(aligned);
}

static void test_alignment(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 10000000; bytes = bytes * 3 + 1) {
        unsigned char *memory = lk__alloc_aligned(bytes);
        assert_int_equal((uintptr_t)memory % LK_ALIGNMENT, 0);
        memset(memory, 0xff, bytes);
        lk__free_aligned(memory);
    }
}

static void test_realloc_and_strdup_keep_contents(void **state)
{
    (void)state;
    char *text = lk__strdup("lockstep");
    assert_string_equal(text, "lockstep");
    text = lk__realloc(text, 1000, 1);
    assert_string_equal(text, "lockstep");
    lk__free(text);
}

static void test_overflow_is_refused(void **state)
{
    (void)state;
    assert_null(lk__calloc(SIZE_MAX / 2, 3));
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    lk_error_clear();
    char *kept = lk__strdup("kept");
    assert_null(lk__realloc(kept, SIZE_MAX, 2));
    assert_string_equal(kept, "kept");
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    lk__free(kept);
    lk_error_clear();
    assert_null(lk__alloc_aligned(SIZE_MAX));
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);

    size_t size;
    int64_t number;
    assert_true(lk__mul_size(SIZE_MAX / 3, 3, &size));
    assert_false(lk__mul_size(SIZE_MAX / 3 + 1, 3, &size));
    assert_true(lk__mul_i64(INT64_MAX, -1, &number));
    assert_false(lk__mul_i64(INT64_MIN, -1, &number));
}

static void test_injected_failure(void **state)
{
    (void)state;
    lk__mem_fail_at(2);
    void *memory[5] = {lk__calloc(1, 8), lk__alloc_aligned(8), lk__calloc(3, 8), lk__strdup("x"), lk__alloc_aligned(8)};
    assert_int_equal(lk__mem_allocations(), 5);
    assert_null(memory[2]);
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    assert_string_equal(lk_error_message(), "out of memory: 24 bytes were refused");
    lk__mem_fail_at(-1);
    assert_int_equal(lk__mem_allocations(), 0);
    for (size_t i = 0; i < 5; i++) {
        if (i != 2)
            assert_non_null(memory[i]);
    }
    lk__free(memory[0]);
    lk__free_aligned(memory[1]);
    lk__free(memory[3]);
    lk__free_aligned(memory[4]);
}

static void test_injected_failure_keeps_the_old_block(void **state)
{
    (void)state;
    char *text = lk__strdup("kept");
    lk__mem_fail_at(0);
    assert_null(lk__realloc(text, 100, 1));
    assert_string_equal(text, "kept");
    lk__free(text);
}

static void test_growth_keeps_elements(void **state)
{
    (void)state;
    int64_t capacity = 0;
    int *values = NULL;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(LK_GROW(values, &capacity, i + 1), LK_OK);
        assert_true(capacity > i);
        values[i] = i;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(values[i], i);
    int64_t before = capacity;
    assert_int_equal(LK_GROW(values, &capacity, INT64_MAX), LK_ERR_MEMORY); /* more bytes than a size_t counts */
    lk_error_clear();
    lk__mem_fail_at(0);
    assert_int_equal(LK_GROW(values, &capacity, before + 1), LK_ERR_MEMORY);
    lk__mem_fail_at(-1);
    assert_int_equal(capacity, before);
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    lk_error_clear();
    lk__free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_memory_is_zeroed, prepare),
        cmocka_unit_test_setup(test_nothing_is_an_allocation, prepare),
        cmocka_unit_test_setup(test_alignment, prepare),
        cmocka_unit_test_setup(test_realloc_and_strdup_keep_contents, prepare),
        cmocka_unit_test_setup(test_overflow_is_refused, prepare),
        cmocka_unit_test_setup(test_injected_failure, prepare),
        cmocka_unit_test_setup(test_injected_failure_keeps_the_old_block, prepare),
        cmocka_unit_test_setup(test_growth_keeps_elements, prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
