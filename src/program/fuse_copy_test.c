/* Tests which copies a program leaves out, and that its results stay those of the operators. $LOCKSTEP_TEST_DEVICES
 * names the device: only kernels of GPUs can write a part of a tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lockstep/autograd.h"
#include "program/program_testing.h"

enum { ROWS = 5, COLUMNS = 7, COUNT = ROWS * COLUMNS };

/* `packed` is a variable with room for two matrices. */
typedef struct example {
    lk_program_fn fn;
    lk_tensor *packed;
    lk_tensor *parts[2];
} example;

static lk_tensor *product(lk_tensor *a, lk_tensor *b)
{
    lk_tensor *y = lk_mul(a, b);
    assert_non_null(y);
    return y;
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* The result is only copied, into all of a variable. */
static lk_status fill(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    assert_ok(lk_copy_into(e->packed, lk_concat((lk_tensor *[]){in[0], in[1]}, 2, 0)));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* Both sums are only copied, into parts of one variable. */
static lk_status pack(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *first = lk_add(in[0], in[1]), *second = product(in[0], in[1]);
    assert_ok(lk_copy_into(e->parts[0], first));
    assert_ok(lk_copy_into(e->parts[1], second));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* The copied tensor is a view of another shape. No kernel may choose the layout of softmax's result. */
static lk_status pack_view(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *flat = lk_reshape(lk_softmax(in[0], 1), LK_SHAPE(COUNT));
    assert_ok(lk_copy_into(lk_reshape(e->parts[1], LK_SHAPE(COUNT)), flat));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* Another call, or the caller, sees the copied tensor as well. */
static lk_status read_twice(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *made = product(in[0], in[1]);
    assert_ok(lk_copy_into(e->parts[0], made));
    out[0] = lk_add(made, e->parts[1]);
    return LK_OK;
}

static lk_status give_back(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    out[0] = product(in[0], in[1]);
    return lk_copy_into(e->parts[0], out[0]);
}

/* The variable is read, before it is overwritten, by a call behind the one that makes its next value, or by that one.
 */
static lk_status read_before(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *made = product(in[0], in[1]);
    out[0] = lk_relu(e->packed);
    return lk_copy_into(e->parts[0], made);
}

static lk_status read_by_maker(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *made = lk_sub(e->parts[1], in[0]);
    assert_ok(lk_copy_into(e->parts[0], made));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* Another call writes the same place in between. The earlier one must neither overwrite it nor be overwritten. */
static lk_status write_twice(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_tensor *first = product(in[0], in[1]), *second = lk_add(in[0], in[1]);
    assert_ok(lk_copy_into(e->parts[0], second));
    assert_ok(lk_copy_into(e->parts[0], first));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* An input has no call that makes it, and a transposed matrix is not what its call made. */
static lk_status copy_input(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    assert_ok(lk_copy_into(e->parts[0], in[0]));
    lk_tensor *turned = lk_transpose(product(in[0], in[1]), 0, 1);
    assert_ok(lk_copy_into(lk_reshape(e->parts[1], LK_SHAPE(COLUMNS, ROWS)), turned));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

/* The copy is made where all branches have ended; the call in the branch may write in its place if there is no other.
 */
static lk_status make_in_branch(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_program_branch(1);
    lk_tensor *made = product(in[0], in[1]);
    lk_program_branch(0);
    out[0] = lk_copy(in[0], lk_tensor_device(in[0]));
    return lk_copy_into(e->parts[0], made);
}

static lk_status make_in_branches(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const example *e = user;
    lk_program_branch(1);
    lk_tensor *first = product(in[0], in[1]);
    lk_program_branch(2);
    lk_tensor *second = lk_add(in[0], in[1]);
    lk_program_branch(0);
    assert_ok(lk_copy_into(e->parts[0], first));
    assert_ok(lk_copy_into(e->parts[1], second));
    out[0] = lk_relu(e->packed);
    return LK_OK;
}

enum { IMAGES = 8, SIDE = 12 };

/* A convolution whose result, or gradient, is only copied: to a new tensor, or into a variable. */
typedef struct convolution {
    bool relu, gradient;
    lk_tensor *variable; /* NULL: to a new tensor */
} convolution;

static lk_status convolve(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const convolution *c = user;
    lk_tape *tape = c->gradient ? lk_tape_begin(in, 1) : NULL;
    lk_tensor *y = lk_conv2d(in[0], in[1], NULL, &(lk_conv2d_opts){.padding = {1, 1}});
    y = c->relu ? lk_relu(y) : y;
    if (tape)
        assert_ok(lk_tape_gradient(tape, y, in[0], &y));
    lk_tape_release(tape);
    if (c->variable)
        assert_ok(lk_copy_into(c->variable, y));
    out[0] = c->variable ? lk_relu(c->variable) : lk_copy(y, lk_tensor_device(in[0]));
    return LK_OK;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static void count_copy(void *user, const char *op, const char *call)
{
    (void)call;
    *(int *)user += strcmp(op, "copy") == 0;
}

static void make_variable(lk_device *device, example *e)
{
    e->packed = numbers(device, LK_SHAPE(2 * ROWS, COLUMNS), 3);
    for (int i = 0; i < 2; i++)
        e->parts[i] = lk_slice(e->packed, 0, i * ROWS, (i + 1) * ROWS);
}

static const char *device_spec(void)
{
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    return spec ? spec : "cpu:0";
}

/* `kept`: copies into parts of a tensor that are left out on GPUs alone. */
static void expect_copies(lk_program_fn fn, int copies, int kept)
{
    lk_device *device = open_device(device_spec());
    lk_scope_begin();
    example separate = {.fn = fn}, recorded = separate;
    lk_tensor *in[] = {numbers(device, LK_SHAPE(ROWS, COLUMNS), 1), numbers(device, LK_SHAPE(ROWS, COLUMNS), 2)};
    lk_tensor *want, *have;
    int left = 0;
    make_variable(device, &separate);
    make_variable(device, &recorded);
    lk_program *program = lk_program_record(device, fn, &recorded, in, 2, 1, NULL);
    assert_non_null(program);
    lk_program_visit(program, count_copy, &left);
    assert_int_equal(left, strncmp(device_spec(), "cuda", 4) == 0 ? copies : copies + kept);
    for (int replay = 0; replay < 3; replay++) {
        assert_ok(fn(&separate, in, &want));
        assert_ok(lk_program_run(program, in, 0, &have));
        expect_equal(have, want);
        expect_equal(recorded.packed, separate.packed);
    }
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void copies_of_what_nothing_else_reads_are_left_out(void **state)
{
    (void)state;
    expect_copies(fill, 0, 0);
    expect_copies(pack, 0, 2);
    expect_copies(pack_view, 0, 1);
}

static void copies_of_what_others_see_stay(void **state)
{
    (void)state;
    expect_copies(read_twice, 1, 0);
    expect_copies(give_back, 1, 0);
    expect_copies(copy_input, 2, 0);
}

static void copies_into_what_is_used_before_stay(void **state)
{
    (void)state;
    expect_copies(read_before, 1, 0);
    expect_copies(read_by_maker, 1, 0);
    expect_copies(write_twice, 1, 1);
}

static void copies_of_what_branches_make_stay_if_there_are_several(void **state)
{
    (void)state;
    expect_copies(make_in_branch, 1, 1); /* that of the input */
    expect_copies(make_in_branches, 2, 0);
}

static void check_convolution(lk_device *device, int channels, convolution c, bool fuse)
{
    lk_scope_begin();
    lk_shape shape = LK_SHAPE(IMAGES, channels, SIDE, SIDE);
    lk_tensor *in[] = {numbers(device, shape, 1), numbers(device, LK_SHAPE(channels, channels, 3, 3), 2)};
    lk_tensor *want, *have;
    assert_ok(convolve(&c, in, &want));
    lk_program *program = lk_program_record(device, convolve, &c, in, 2, 1, &(lk_program_opts){.fuse = fuse});
    assert_non_null(program);
    assert_ok(lk_program_run(program, in, 0, &have));
    expect_equal(have, want);
    lk_program_release(program);
    lk_scope_end();
}

/* On a CPU device another kernel would compute a convolution that has to write where a copy puts its result. */
static void copied_convolutions_have_their_bits(void **state)
{
    (void)state;
    lk_device *device = open_device(device_spec());
    lk_scope_begin();
    for (int i = 0; i < 32; i++) {
        int channels = i & 1 ? 32 : 4;
        convolution c = {.relu = i & 2, .gradient = i & 4};
        if (i & 8)
            c.variable = lk_zeros(device, LK_F32, LK_SHAPE(IMAGES, channels, SIDE, SIDE));
        check_convolution(device, channels, c, i & 16);
    }
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_what_nothing_else_reads_are_left_out),
        cmocka_unit_test(copies_of_what_others_see_stay),
        cmocka_unit_test(copies_into_what_is_used_before_stay),
        cmocka_unit_test(copies_of_what_branches_make_stay_if_there_are_several),
        cmocka_unit_test(copied_convolutions_have_their_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
