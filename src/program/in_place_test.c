/* Tests which results of a program overwrite an operand, and that they equal the operators' own results. */
#include "core/backend.h"
#include "lockstep/device.h"
#include "lockstep/ops.h"
#include "program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Images and channels fill the vectors and blocks of any instruction set, so that no layout has more elements. */
enum { IMAGES = 16, CHANNELS = 16, SIZE = 6, WIDTH = 24, INPUTS = 4, OUTPUTS = 2 };
enum { IMAGE_FLOATS = IMAGES * CHANNELS * SIZE * SIZE, SQUARE_FLOATS = WIDTH * WIDTH };

static lk_tensor *numbers(lk_device *device, lk_shape shape, uint64_t purpose)
{
    lk_tensor *x = lk_uniform(device, LK_F32, shape, -1, 1, (lk_random_key){.seed = 5, .purpose = purpose});
    assert_non_null(x);
    return x;
}

/* Images, kernels of 3x3 that keep the shape, a square matrix, and indices of samples. */
static void make_inputs(lk_device *device, lk_tensor **in)
{
    in[0] = numbers(device, LK_SHAPE(IMAGES, CHANNELS, SIZE, SIZE), 1);
    in[1] = numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 2);
    in[2] = numbers(device, LK_SHAPE(WIDTH, WIDTH), 3);
    in[3] = lk_arange(device, LK_I64, IMAGES, 7, 3);
    assert_non_null(in[3]);
}

/* --- checking a plan ---------------------------------------------------------------------------------------------- */

static const lk_value *value_of(const lk_program *program, const lk_tensor *tensor)
{
    for (int i = 0; i < program->n_values; i++)
        if (program->values[i].storage == tensor->storage)
            return &program->values[i];
    fail_msg("a tensor of a call is no value of the program");
    return NULL;
}

/* Returns whether the first output of the operator's n-th call is in the slot of its operand. */
static bool lies_on(const lk_program *program, const char *op, int n, int operand)
{
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        if (strcmp(call->op->name, op) != 0 || n-- > 0)
            continue;
        const lk_value *from = value_of(program, call->in[operand]), *to = value_of(program, call->out[0]);
        bool inside = from->kind == LK_VALUE_INSIDE && to->kind == LK_VALUE_INSIDE;
        return inside && from->slot == to->slot && from->offset == to->offset;
    }
    fail_msg("the program has no such call of %s", op);
    return false;
}

static void expect(const lk_program *program, const char *op, int n, int operand, bool replaced)
{
    if (lies_on(program, op, n, operand) != replaced)
        fail_msg("%s %d should %slie where its operand %d does", op, n, replaced ? "" : "not ", operand);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void expect_equal(lk_tensor *have, lk_tensor *want)
{
    static float a[IMAGE_FLOATS], b[IMAGE_FLOATS];
    size_t bytes = (size_t)lk_tensor_count(want) * sizeof(float);
    assert_true(bytes <= sizeof a);
    assert_int_equal(lk_tensor_read(have, a, bytes), LK_OK);
    assert_int_equal(lk_tensor_read(want, b, bytes), LK_OK);
    assert_memory_equal(a, b, bytes);
}

/* The first replay has no plan. */
static void expect_operators_bits(lk_program *program, lk_program_fn fn, lk_tensor *const *in)
{
    lk_tensor *want[OUTPUTS] = {NULL}, *have[OUTPUTS];
    assert_int_equal(fn(NULL, in, want), LK_OK);
    for (int replay = 0; replay < 3; replay++) {
        assert_int_equal(lk_program_run(program, in, 0, have), LK_OK);
        for (int i = 0; i < OUTPUTS && want[i]; i++)
            expect_equal(have[i], want[i]);
    }
    lk_program_memory memory;
    assert_int_equal(lk_program_get_memory(program, &memory), LK_OK); /* waits until the plan is made */
    assert_true(memory.peak <= memory.planned && memory.planned <= memory.sum);
}

typedef void (*look_fn)(const lk_program *program);

static void check_on(const char *spec, lk_program_fn fn, look_fn look)
{
    lk_tensor *in[INPUTS], *before[INPUTS];
    lk_device *device = lk_device_open(spec);
    assert_non_null(device);
    lk_scope_begin();
    make_inputs(device, in);
    make_inputs(device, before);
    lk_program *program = lk_program_record(device, fn, NULL, in, INPUTS, OUTPUTS, &(lk_program_opts){.fuse = false});
    assert_non_null(program);
    expect_operators_bits(program, fn, in);
    for (int i = 0; i < 3; i++)
        expect_equal(in[i], before[i]);
    look(program);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void check(lk_program_fn fn, look_fn look)
{
    check_on("cpu", fn, look);
    check_on("ref", fn, look);
}

static lk_tensor *convolved(lk_tensor *const *in)
{
    return lk_conv2d(in[0], in[1], NULL, &(lk_conv2d_opts){.padding = {1, 1}});
}

/* --- operands that are not needed any more ------------------------------------------------------------------------ */

static lk_status chain(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *y = lk_dropout(lk_relu(convolved(in)), in[3], 0.25, (lk_random_key){.seed = 1, .purpose = 2});
    out[0] = lk_sum(lk_mul(in[0], y), NULL);
    return lk_error_status();
}

static void look_at_chain(const lk_program *program)
{
    expect(program, "relu", 0, 0, true);
    expect(program, "dropout", 0, 0, true);
    expect(program, "mul", 0, 0, false); /* an input of the program */
    expect(program, "mul", 0, 1, true);
    assert_true(program->peak_bytes < 2 * IMAGE_FLOATS * sizeof(float));
    assert_int_equal(program->plan_bytes, program->peak_bytes);
    assert_true(program->sum_bytes >= 4 * IMAGE_FLOATS * sizeof(float));
}

static void a_chain_has_one_place(void **state)
{
    (void)state;
    check(chain, look_at_chain);
}

/* --- operands that are needed later ------------------------------------------------------------------------------- */

static lk_status needed_later(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *x = convolved(in), *y = lk_relu(x);
    out[0] = lk_sum(lk_sub(y, x), NULL);
    out[1] = lk_relu(in[0]);
    return lk_error_status();
}

static void look_at_needed_later(const lk_program *program)
{
    expect(program, "relu", 0, 0, false);
    expect(program, "sub", 0, 0, !lies_on(program, "sub", 0, 1)); /* over one of them, not over both */
    expect(program, "relu", 1, 0, false);                         /* neither an input nor an output has a slot */
}

static void what_is_needed_later_stays(void **state)
{
    (void)state;
    check(needed_later, look_at_needed_later);
}

/* --- views -------------------------------------------------------------------------------------------------------- */

/* A view of the operand is still in use. */
static lk_status seen_later(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *x = lk_matmul(in[2], in[2]), *view = lk_transpose(x, 0, 1);
    out[0] = lk_matmul(lk_relu(x), view);
    return lk_error_status();
}

static void look_at_seen_later(const lk_program *program)
{
    expect(program, "relu", 0, 0, false);
}

static void what_is_seen_through_a_view_stays(void **state)
{
    (void)state;
    check(seen_later, look_at_seen_later);
}

/* The operand is a view, or the other operand is a view of it. */
static lk_status views(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *x = lk_matmul(in[2], in[2]), *y = lk_matmul(x, in[2]);
    lk_tensor *turned = lk_relu(lk_transpose(x, 0, 1));
    out[0] = lk_sum(lk_sub(y, lk_transpose(y, 0, 1)), NULL);
    out[1] = lk_sum(turned, NULL);
    return lk_error_status();
}

static void look_at_views(const lk_program *program)
{
    expect(program, "relu", 0, 0, false);
    expect(program, "sub", 0, 0, false);
    expect(program, "sub", 0, 1, false);
}

static void a_view_is_not_replaced(void **state)
{
    (void)state;
    check(views, look_at_views);
}

/* A dense view of all of it makes no difference: the operand is the storage behind it. */
static lk_status flattened(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *rows = lk_reshape(lk_relu(convolved(in)), LK_SHAPE(IMAGES, -1));
    out[0] = lk_sum(lk_softmax(rows, 1), NULL);
    return lk_error_status();
}

static void look_at_flattened(const lk_program *program)
{
    expect(program, "softmax", 0, 0, true);
}

static void another_shape_of_all_of_it_is_replaced(void **state)
{
    (void)state;
    check(flattened, look_at_flattened);
}

/* --- operands that are not as large ------------------------------------------------------------------------------- */

static lk_status broadcast(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *x = lk_matmul(in[2], in[2]), *row = lk_sum(x, &(lk_reduce_opts){.n_axes = 1, .axes = {0}});
    lk_tensor *column = lk_sum(x, &(lk_reduce_opts){.n_axes = 1, .axes = {1}, .keepdim = true});
    out[0] = lk_sum(lk_add(lk_add(row, column), x), NULL);
    return lk_error_status();
}

static void look_at_broadcast(const lk_program *program)
{
    expect(program, "add", 0, 0, false);
    expect(program, "add", 0, 1, false);
    expect(program, "add", 1, 0, !lies_on(program, "add", 1, 1));
}

static void what_is_broadcast_is_not_replaced(void **state)
{
    (void)state;
    check(broadcast, look_at_broadcast);
}

/* --- kernels that read what they have written --------------------------------------------------------------------- */

static lk_status products(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *x = lk_matmul(in[2], in[2]);
    out[0] = lk_sum(lk_matmul(x, in[2]), NULL);
    out[1] = lk_sum(lk_conv2d(convolved(in), in[1], NULL, &(lk_conv2d_opts){.padding = {1, 1}}), NULL);
    return lk_error_status();
}

static void look_at_products(const lk_program *program)
{
    expect(program, "matmul", 1, 0, false);
    expect(program, "conv2d", 1, 0, false);
}

static void a_product_has_a_place_of_its_own(void **state)
{
    (void)state;
    check(products, look_at_products);
}

/* Branch 2 makes the second relu while branch 1 reads the operand, and both results cross branches. */
static lk_status cross_branches(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_program_branch(1);
    lk_tensor *a = lk_relu(in[0]);
    lk_program_branch(0);
    lk_tensor *t = lk_add(in[0], in[0]);
    lk_program_branch(1);
    lk_tensor *b = lk_sum(a, NULL);
    lk_program_branch(2);
    lk_tensor *c = lk_relu(a);
    lk_program_branch(0);
    out[1] = lk_add(t, t);
    lk_program_branch(1);
    lk_tensor *e = lk_sum(c, NULL);
    lk_program_branch(0);
    out[0] = lk_add(b, e);
    return lk_error_status();
}

static void look_at_branches(const lk_program *program)
{
    expect(program, "relu", 1, 0, false);
}

static void what_another_branch_reads_stays(void **state)
{
    (void)state;
    check(cross_branches, look_at_branches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_has_one_place),
        cmocka_unit_test(what_is_needed_later_stays),
        cmocka_unit_test(what_is_seen_through_a_view_stays),
        cmocka_unit_test(a_view_is_not_replaced),
        cmocka_unit_test(another_shape_of_all_of_it_is_replaced),
        cmocka_unit_test(what_is_broadcast_is_not_replaced),
        cmocka_unit_test(a_product_has_a_place_of_its_own),
        cmocka_unit_test(what_another_branch_reads_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
