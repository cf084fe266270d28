/* The cost of temporaries: which ones fit into a thread's own memory, which are allocated, and when that memory is
 * freed. Counted calls run on a new thread, which has no such memory yet. */
#include "base/mem.h"
#include "base/status.h"
#include "ref/ref.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* In doubles: the largest temporary that is kept, which is also the limit of a thread's own memory. */
enum { MOST_KEPT = (1 << 20) / sizeof(double), MOST_NEEDS = 3 };

/* A call of kernel(), and the number of allocations it makes. */
typedef struct kernel_call {
    int64_t needs[MOST_NEEDS]; /* sizes in doubles; 0: end of the list */
    int64_t allocations, seen;
    bool good;
} kernel_call;

static bool all_are(const double *values, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        if (values[i] != value)
            return false;
    return true;
}

static void fill(double *values, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
}

/* Takes a temporary, and calls a kernel that takes the next one. Returns whether every temporary was zeroed, and
 * overwritten by no other kernel. */
static bool kernel(const int64_t *needs, int n)
{
    lk_ref_scratch scratch = {0};
    double *own = lk__ref_new(&scratch, needs[0]);
    bool good = own && all_are(own, needs[0], 0);
    if (good) {
        fill(own, needs[0], n);
        good = (n == 1 || needs[1] == 0 || kernel(needs + 1, n - 1)) && all_are(own, needs[0], n);
    }
    return lk__ref_end(&scratch) == LK_OK && good;
}

static void count_allocations(kernel_call *call)
{
    lk__mem_fail_at(-1);
    call->good = kernel(call->needs, MOST_NEEDS);
    call->seen = lk__mem_allocations();
}

static int64_t number_of_needs(const kernel_call *call)
{
    int64_t n = 0;
    while (n < MOST_NEEDS && call->needs[n] > 0)
        n++;
    return n;
}

static void *make_calls(void *calls)
{
    for (kernel_call *call = calls; call->needs[0] > 0; call++)
        count_allocations(call);
    return NULL;
}

static void run(void *(*thread_main)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_main, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Makes the calls on a new thread and checks how many allocations each makes. A build that keeps no memory allocates
 * every temporary. A call without temporaries ends the list. */
static void expect_allocations(kernel_call *calls)
{
    run(make_calls, calls);
    for (kernel_call *call = calls; call->needs[0] > 0; call++) {
        assert_true(call->good);
        assert_int_equal(call->seen, lk__mem_may_keep() ? call->allocations : number_of_needs(call));
    }
}

static void the_stack_grows_before_the_next_call(void **state)
{
    (void)state;
    expect_allocations((kernel_call[]){
        {.needs = {100, 200}, .allocations = 2},
        {.needs = {100, 200}, .allocations = 1}, /* grows the thread's memory */
        {.needs = {100, 200}, .allocations = 0},
        {.needs = {300}, .allocations = 0},
        {.needs = {100, 200, 300}, .allocations = 1}, /* allocates the 300 */
        {.needs = {100, 200, 300}, .allocations = 1},
        {.needs = {100, 200, 300}, .allocations = 0},
        {.needs = {100, 200}, .allocations = 0},
        {.needs = {0}},
    });
}

static void too_large_a_temporary_is_allocated_for_each_call(void **state)
{
    (void)state;
    expect_allocations((kernel_call[]){
        {.needs = {MOST_KEPT + 1, 100}, .allocations = 2},
        {.needs = {MOST_KEPT + 1, 100}, .allocations = 2}, /* one of them grows the thread's memory for the 100 */
        {.needs = {MOST_KEPT + 1, 100}, .allocations = 1},
        {.needs = {MOST_KEPT + 1, 100}, .allocations = 1},
        {.needs = {MOST_KEPT}, .allocations = 1},
        {.needs = {MOST_KEPT}, .allocations = 1},
        {.needs = {MOST_KEPT}, .allocations = 0},
        {.needs = {0}},
    });
}

static void the_stack_is_limited_to_the_same_size(void **state)
{
    (void)state;
    expect_allocations((kernel_call[]){
        {.needs = {MOST_KEPT - 1000, 800, 800}, .allocations = 3},
        {.needs = {MOST_KEPT - 1000, 800, 800},
         .allocations = 2}, /* one grows the thread's memory for two of them, one is for the third */
        {.needs = {MOST_KEPT - 1000, 800, 800}, .allocations = 1},
        {.needs = {MOST_KEPT - 1000, 800, 800}, .allocations = 1},
        {.needs = {MOST_KEPT - 1000, 800}, .allocations = 0},
        {.needs = {0}},
    });
}

static void *take_one(int64_t count)
{
    lk_ref_scratch scratch = {0};
    double *own = lk__ref_new(&scratch, count);
    lk__ref_end(&scratch);
    return own;
}

static void successive_kernels_use_the_same_memory(void **state)
{
    (void)state;
    if (!lk__mem_may_keep()) {
        print_message("SKIP: this build keeps no memory\n");
        skip();
    }
    assert_true(kernel((int64_t[]){100, 200}, 2));
    lk_ref_scratch scratch = {0};
    double *outer = lk__ref_new(&scratch, 100);
    void *first = take_one(200);
    assert_ptr_not_equal(first, outer);
    assert_ptr_equal(take_one(100), first);
    assert_int_equal(lk__ref_end(&scratch), LK_OK);
    assert_ptr_equal(take_one(200), outer);
}

static void temporaries_of_both_types_lie_apart(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        lk_ref_scratch scratch = {0};
        double *real = lk__ref_new(&scratch, 9);
        int64_t *integer = lk__ref_new_int(&scratch, 9);
        double *last = lk__ref_new(&scratch, 9);
        fill(real, 9, 1);
        fill(last, 9, 3);
        for (int i = 0; i < 9; i++) {
            assert_int_equal(integer[i], 0);
            integer[i] = 2;
        }
        assert_true(all_are(real, 9, 1) && all_are(last, 9, 3));
        assert_int_equal(lk__ref_end(&scratch), LK_OK);
    }
}

/* The failed call's scratch gives no more memory and reports the error in the end; the thread's memory is unchanged. */
static void a_failed_allocation_ends_a_kernel(void **state)
{
    (void)state;
    static const int64_t needs[] = {100, 200, 300};
    assert_true(kernel(needs, 3) && kernel(needs, 3));
    for (int64_t fails = 0; fails < 3; fails++) {
        lk_ref_scratch outer = {0}, inner = {0};
        double *before = lk__ref_new(&outer, 100);
        fill(before, 100, 7);
        lk__mem_fail_at(fails);
        void *temporary[] = {lk__ref_new(&inner, 100), lk__ref_new_int(&inner, 200), lk__ref_new(&inner, 300)};
        for (int64_t i = 0; i < 3; i++)
            assert_true(temporary[i] ? i < fails : i >= fails);
        assert_int_equal(lk__mem_allocations(), fails + 1);
        assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
        assert_int_equal(lk__ref_end(&inner), LK_ERR_MEMORY);
        assert_true(all_are(before, 100, 7));
        assert_int_equal(lk__ref_end(&outer), LK_OK);
        lk__mem_fail_at(-1);
        lk_error_clear();
    }
    assert_true(kernel(needs, 3));
    assert_int_equal(lk__mem_allocations(), lk__mem_may_keep() ? 0 : 3);
}

static void too_many_elements_are_refused(void **state)
{
    (void)state;
    lk_ref_scratch scratch = {0};
    assert_null(lk__ref_new(&scratch, INT64_MAX));
    assert_null(lk__ref_new(&scratch, 1));
    assert_int_equal(lk__ref_end(&scratch), LK_ERR_MEMORY);
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    lk_error_clear();
}

static void too_many_temporaries_are_refused(void **state)
{
    (void)state;
    lk_ref_scratch scratch = {0};
    for (int i = 0; i < LK_REF_MAX_SCRATCH; i++)
        assert_non_null(lk__ref_new(&scratch, MOST_KEPT + 1));
    assert_null(lk__ref_new(&scratch, MOST_KEPT + 1));
    assert_int_equal(lk__ref_end(&scratch), LK_ERR_MEMORY);
    lk_error_clear();
}

static bool is_mapped(const void *address)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char in_memory;
    char *begin = (char *)address - (uintptr_t)address % page;
    return mincore(begin, page, &in_memory) == 0 || errno != ENOMEM;
}

/* Makes the thread keep memory so large that malloc maps it separately; is_mapped then tells whether it was freed. */
static void *keep_much(void *memory)
{
    take_one(MOST_KEPT);
    void *own = take_one(MOST_KEPT);
    *(void **)memory = is_mapped(own) ? own : NULL;
    return NULL;
}

static void the_stack_is_freed_with_its_thread(void **state)
{
    (void)state;
    void *memory = NULL;
    if (!lk__mem_may_keep()) {
        print_message("SKIP: this build keeps no memory\n");
        skip();
    }
    run(keep_much, &memory);
    assert_non_null(memory);
    assert_false(is_mapped(memory));
}

static int prepare(void **state)
{
    (void)state;
    lk_error_clear();
    lk__mem_fail_at(-1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_stack_grows_before_the_next_call, prepare),
        cmocka_unit_test_setup(too_large_a_temporary_is_allocated_for_each_call, prepare),
        cmocka_unit_test_setup(the_stack_is_limited_to_the_same_size, prepare),
        cmocka_unit_test_setup(successive_kernels_use_the_same_memory, prepare),
        cmocka_unit_test_setup(temporaries_of_both_types_lie_apart, prepare),
        cmocka_unit_test_setup(a_failed_allocation_ends_a_kernel, prepare),
        cmocka_unit_test_setup(too_many_elements_are_refused, prepare),
        cmocka_unit_test_setup(too_many_temporaries_are_refused, prepare),
        cmocka_unit_test_setup(the_stack_is_freed_with_its_thread, prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
