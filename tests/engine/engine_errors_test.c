/* If an operator fails, its outputs and everything computed from them fail. A wait returns its name, shapes and call
 * site, with either engine. */
#include "engine_testing.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A call that fails on the device, because label 7 is not one of 3 classes. *line: the source line that its message
 * must name. */
static lk_tensor *failing(lk_device *device, int *line)
{
    const int32_t labels[] = {0, 7};
    lk_tensor *logits = lk_zeros(device, LK_F32, LK_SHAPE(2, 3));
    lk_tensor *wrong = lk_tensor_from(device, LK_I32, LK_SHAPE(2), labels);
    *line = __LINE__ + 1;
    lk_tensor *loss = lk_sparse_softmax_cross_entropy(logits, wrong, LK_REDUCTION_NONE);
    assert_non_null(loss);
    return loss;
}

static void assert_reported(lk_status status, const int *line)
{
    char place[64];
    snprintf(place, sizeof place, "engine_errors_test.c:%d", *line);
    assert_int_equal(status, LK_ERR_ARGUMENT);
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    const char *parts[] = {"sparse_softmax_cross_entropy", "f32[2,3]", "i32[2]", "label 7", "[0, 3)", "ref:0", place};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(lk_error_message(), parts[i]))
            fail_msg("'%s' is not in '%s'", parts[i], lk_error_message());
    assert_null(strchr(lk_error_message(), '\n'));
    lk_error_clear();
}

static void every_way_to_wait_reports_a_failure(void **state)
{
    devices *d = *state;
    int line;
    float elements[2];
    double value;
    assert_reported(lk_tensor_wait(failing(d->a, &line)), &line);
    assert_reported(lk_tensor_read(failing(d->a, &line), elements, sizeof elements), &line);
    assert_reported(lk_tensor_item(lk_slice(failing(d->a, &line), 0, 0, 1), &value), &line);
    assert_reported(lk_tensor_print(failing(d->a, &line), stdout), &line);
    assert_null(lk_tensor_text(failing(d->a, &line)));
    assert_reported(lk_error_status(), &line);
    failing(d->a, &line);
    assert_reported(lk_device_sync(d->a), &line);
    lk_tensor *loss = failing(d->a, &line);
    while (!is_complete(loss))
        sched_yield();
    assert_reported(lk_device_sync(d->b), &line);
    failing(d->a, &line);
    assert_reported(lk_wait_all(), &line);
}

static void a_wait_for_all_reports_a_failure_once(void **state)
{
    devices *d = *state;
    int line;
    lk_tensor *loss = failing(d->a, &line);
    assert_reported(lk_wait_all(), &line);
    assert_int_equal(lk_wait_all(), LK_OK);
    assert_int_equal(lk_device_sync(d->a), LK_OK);
    assert_reported(lk_tensor_wait(loss), &line);
    assert_reported(lk_tensor_wait(loss), &line);
    assert_int_equal(lk_wait_all(), LK_OK);
    assert_int_equal(lk_error_status(), LK_OK);
}

static void a_failure_spreads_to_all_results(void **state)
{
    devices *d = *state;
    int line;
    float elements[2];
    lk_tensor *loss = failing(d->a, &line);
    lk_tensor *derived = lk_mul_scalar(lk_add_scalar(loss, 1), 2);
    lk_tensor *elsewhere = lk_add_scalar(lk_copy(derived, d->b), 1);
    lk_tensor *back = lk_copy(elsewhere, d->a);
    lk_tensor *view = lk_reshape(back, LK_SHAPE(1, 2));
    assert_reported(lk_tensor_read(derived, elements, sizeof elements), &line);
    assert_reported(lk_tensor_read(elsewhere, elements, sizeof elements), &line);
    assert_reported(lk_tensor_read(back, elements, sizeof elements), &line);
    assert_reported(lk_tensor_read(view, elements, sizeof elements), &line);
}

static void a_failure_spreads_to_tensors_written_in_place(void **state)
{
    devices *d = *state;
    int line;
    float elements[2];
    lk_tensor *x = lk_ones(d->a, LK_F32, LK_SHAPE(2));
    lk_tensor *before = lk_add_scalar(x, 1);
    assert_int_equal(lk_add_into(x, x, failing(d->a, &line)), LK_OK);
    assert_int_equal(lk_copy_into(x, before), LK_OK);
    assert_reported(lk_tensor_read(x, elements, sizeof elements), &line);
    assert_int_equal(lk_tensor_read(before, elements, sizeof elements), LK_OK);
    assert_true(elements[0] == 2 && elements[1] == 2);
}

static void independent_tensors_stay_readable(void **state)
{
    devices *d = *state;
    int line;
    lk_tensor *before = number(d->a, 1);
    lk_tensor *loss = failing(d->a, &line);
    lk_tensor *after = lk_add_scalar(before, 1);
    lk_tensor *elsewhere = lk_copy(after, d->b);
    assert_true(item(before) == 1);
    assert_true(item(after) == 2);
    assert_true(item(elsewhere) == 2);
    assert_reported(lk_tensor_wait(loss), &line);
}

static void the_first_of_several_failures_is_kept(void **state)
{
    devices *d = *state;
    int first, second;
    lk_tensor *a = failing(d->a, &first), *b = failing(d->a, &second);
    assert_reported(lk_tensor_wait(lk_add(a, b)), &first);
    assert_reported(lk_tensor_wait(b), &second);
}

static void tensors_never_written_cannot_be_read(void **state)
{
    devices *d = *state;
    float element;
    lk_tensor *x = lk_tensor_new(d->a, LK_F32, LK_SHAPE(1));
    assert_int_equal(lk_tensor_read(x, &element, sizeof element), LK_ERR_STATE);
    lk_error_clear();
    assert_int_equal(lk_tensor_wait(lk_add_scalar(x, 1)), LK_ERR_STATE);
}

/* A task that counts its outcomes. */
typedef struct counted_task {
    lk_task task;
    int runs, left_out, released;
    lk_status status;
    char why[1024];
} counted_task;

static lk_status count_run(lk_task *task)
{
    ((counted_task *)task)->runs++;
    return LK_OK;
}

static void count_left_out(lk_task *task, lk_status status, const char *why)
{
    counted_task *t = (counted_task *)task;
    t->left_out++;
    t->status = status;
    snprintf(t->why, sizeof t->why, "%s", why);
}

static void count_release(lk_task *task)
{
    ((counted_task *)task)->released++;
}

static counted_task push_reading(lk_device *device, const lk_tensor *x)
{
    counted_task t = {.task = {.device = device,
                               .reads = (lk_storage *[]){x->storage},
                               .n_reads = 1,
                               .run = count_run,
                               .leave_out = count_left_out,
                               .release = count_release}};
    assert_int_equal(lk__engine_push_task(&t.task), LK_OK);
    lk_device_sync(device);
    lk_error_clear();
    return t;
}

static void a_skipped_task_is_told(void **state)
{
    devices *d = *state;
    int line;
    counted_task fine = push_reading(d->b, number(d->a, 1));
    assert_int_equal(fine.runs, 1);
    assert_int_equal(fine.left_out, 0);
    assert_int_equal(fine.released, 1);
    lk_tensor *loss = failing(d->a, &line);
    counted_task poisoned = push_reading(d->b, loss);
    assert_int_equal(poisoned.runs, 0);
    assert_int_equal(poisoned.left_out, 1);
    assert_int_equal(poisoned.released, 1);
    assert_reported(lk_tensor_wait(loss), &line);
    assert_int_equal(poisoned.status, LK_ERR_ARGUMENT);
    assert_non_null(strstr(poisoned.why, "label 7"));
}

/* With the synchronous engine the child needs no thread of the parent's. */
static void a_child_is_refused_its_parents_devices(void **state)
{
    devices *d = *state;
    double value;
    lk_tensor *one = number(d->a, 1);
    assert_int_equal(lk_device_sync(d->a), LK_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lk_tensor *two = lk_add(one, one);
        bool is_refused = !two && lk_error_status() == LK_ERR_STATE && strstr(lk_error_message(), "before fork");
        lk_error_clear();
        bool is_right = two ? lk_tensor_item(two, &value) == LK_OK && value == 2 : lk_wait_all() == LK_OK;
        _exit(is_right && is_refused == !lk__engine_is_sync() ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(lk_tensor_item(lk_add(one, one), &value), LK_OK);
}

/* The child cannot stop the thread that the device has in the parent. */
static void a_child_may_release_its_parents_devices(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it ends a child that starts a thread */
#endif
    lk_device *device = lk_device_open("cpu");
    assert_int_equal(lk_tensor_wait(lk_full(device, LK_F32, LK_SCALAR, 1)), LK_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        double value = 0;
        lk_device_release(device);
        lk_device *own = lk_device_open("cpu");
        bool is_right = lk_tensor_item(lk_full(own, LK_F32, LK_SCALAR, 2), &value) == LK_OK && value == 2;
        lk_device_release(own);
        _exit(is_right ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_way_to_wait_reports_a_failure),    TEST(a_wait_for_all_reports_a_failure_once),
        TEST(a_failure_spreads_to_all_results),       TEST(a_failure_spreads_to_tensors_written_in_place),
        TEST(independent_tensors_stay_readable),      TEST(the_first_of_several_failures_is_kept),
        TEST(tensors_never_written_cannot_be_read),   TEST(a_skipped_task_is_told),
        TEST(a_child_is_refused_its_parents_devices), TEST(a_child_may_release_its_parents_devices),
    };
    int failed = cmocka_run_group_tests_name("asynchronous engine", tests, NULL, NULL);
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    return failed + cmocka_run_group_tests_name("synchronous engine", tests, NULL, NULL);
}
