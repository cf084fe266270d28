/* Kernels that say that a result may take an operand's place (LK_KERNEL_IN_PLACE) give the same there as elsewhere: on
 * the calls of all conformance cases, in every dtype, and, for kernels that work in private layouts, in all of these.
 */
#include "conformance_cases.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/tensor.h"
#include "cpu/cpu_convert.h"
#include "program/program.h"

enum { KERNELS = 4 * LK_OP_COUNT, NOWHERE = -1 };

/* What was tried of a kernel: places of its flags, for each dtype. */
typedef struct tried {
    const lk_kernel *kernel;
    unsigned flags[LK_DTYPE_COUNT], flags_in_layouts;
} tried;

static tried all_tried[KERNELS];
static lk_device *cpu, *ref;

static tried *tried_of(const lk_kernel *kernel)
{
    int i = 0;
    while (all_tried[i].kernel && all_tried[i].kernel != kernel)
        i++;
    assert_true(i < KERNELS - 1);
    all_tried[i].kernel = kernel;
    return &all_tried[i];
}

/* --- a call on tensors of its own --------------------------------------------------------------------------------- */

/* Which call this is, for messages. */
typedef struct context {
    const conformance_case *c;
    lk_dtype dtype;
    const char *layout;
} context;

/* `tag`: what the operands that are like the result lie in; dnnl_format_tag_undef: as they are. */
typedef struct trial_call {
    context where;
    const lk_call *like;
    dnnl_format_tag_t tag;
    bool first_only; /* of these operands */
    lk_call call;
    lk_tensor in[LK_MAX_INPUTS], out[LK_MAX_OUTPUTS];
    lk_storage in_storage[LK_MAX_INPUTS], out_storage[LK_MAX_OUTPUTS];
} trial_call;

static bool is_like_the_result(const lk_call *call, const lk_tensor *x)
{
    return x->dtype == LK_F32 && x->shape.ndim == 4 && count_of(x->shape) > 0 &&
           lk__shape_equal(x->shape, call->out[0]->shape);
}

static const lk_layout *layout_of(const trial_call *t, int i)
{
    const lk_layout *layout = NULL;
    const lk_tensor *x = t->like->in[i];
    if (t->tag == dnnl_format_tag_undef || !is_like_the_result(t->like, x) || (t->first_only && i > 0))
        return NULL;
    assert_int_equal(lk__layout_tagged(x->shape, LK_F32, t->tag, &layout), LK_OK);
    return layout;
}

static void copy_operand(trial_call *t, int i)
{
    lk_tensor *x = t->like->in[i];
    lk_storage *storage = &t->in_storage[i];
    const lk_layout *layout = layout_of(t, i);
    size_t bytes = layout ? layout->bytes : x->storage->used;
    *storage = (lk_storage){.device = t->like->device,
                            .bytes = x->storage->bytes,
                            .planned = bytes,
                            .used = bytes,
                            .data = lk__alloc_aligned(bytes > 0 ? bytes : 1),
                            .layout = layout ? layout : x->storage->layout};
    assert_non_null(storage->data);
    if (layout)
        assert_int_equal(lk__cpu_convert(t->like->device, x, layout, storage->data), LK_OK);
    else
        memcpy(storage->data, x->storage->data, bytes);
    t->in[i] = lk__tensor_alias(x);
    t->in[i].storage = storage;
    t->call.in[i] = &t->in[i];
}

/* place[o]: the operand where output o is to lie, or NOWHERE. */
static void start(trial_call *t, const int *place)
{
    t->call = *t->like;
    for (int i = 0; i < t->call.n_in; i++)
        if (t->like->in[i])
            copy_operand(t, i);
    for (int o = 0; o < t->call.n_out; o++) {
        lk_storage *storage = &t->out_storage[o];
        *storage = (lk_storage){.device = t->like->device, .bytes = t->like->out[o]->storage->bytes};
        if (place[o] != NOWHERE) {
            storage->data = t->in_storage[place[o]].data;
            storage->planned = t->in_storage[place[o]].planned;
        }
        t->out[o] = lk__tensor_alias(t->like->out[o]);
        t->out[o].storage = storage;
        t->call.out[o] = &t->out[o];
    }
    if (lk__run_call(t->like->device, &t->call) != LK_OK)
        fail_msg("%s, %s: %s", lk_op_name(t->where.c->op), t->where.c->name, lk_error_message());
}

static void end(trial_call *t)
{
    for (int i = 0; i < t->call.n_in; i++)
        if (t->like->in[i])
            lk__free_aligned(t->in_storage[i].data);
    for (int o = 0; o < t->call.n_out; o++)
        lk__allocator_put(t->like->device->allocator, t->out_storage[o].block);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static bool is_float_dtype(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_BF16 || dtype == LK_F64;
}

/* Padding included. NaN is NaN. */
static void expect_same(const trial_call *in_place, const trial_call *apart, int o, int input)
{
    const context *x = &in_place->where;
    const lk_storage *a = &in_place->out_storage[o], *b = &apart->out_storage[o];
    lk_dtype dtype = in_place->out[o].dtype;
    size_t size = lk_dtype_size(dtype);
    assert_ptr_equal(a->layout, b->layout);
    assert_int_equal(a->used, b->used);
    for (size_t i = 0; i < a->used / size; i++) {
        const char *have = (const char *)a->data + i * size, *want = (const char *)b->data + i * size;
        bool both_nan = is_float_dtype(dtype) && isnan(value_at(have, dtype, 0)) && isnan(value_at(want, dtype, 0));
        if (!both_nan && memcmp(have, want, size) != 0)
            fail_msg("%s %s, %s, %s: output %d, in the place of input %d (-1: its own), is %.17g at element %zu, but "
                     "%.17g with places for all",
                     lk_op_name(x->c->op), lk_dtype_name(x->dtype), x->c->name, x->layout, o, input,
                     value_at(have, dtype, 0), i, value_at(want, dtype, 0));
    }
}

static void note(const trial_call *t, const int *place)
{
    tried *kernel = tried_of(t->like->kernel);
    for (int o = 0; o < t->call.n_out; o++) {
        if (place[o] == NOWHERE)
            continue;
        kernel->flags[t->call.dtype] |= LK_KERNEL_IN_PLACE(o, place[o]);
        if (t->in_storage[place[o]].layout)
            kernel->flags_in_layouts |= LK_KERNEL_IN_PLACE(o, place[o]);
    }
}

static void check_places(trial_call *t, const int *place)
{
    static const int apart[LK_MAX_OUTPUTS] = {NOWHERE, NOWHERE, NOWHERE, NOWHERE};
    trial_call other = *t;
    start(t, place);
    start(&other, apart);
    for (int o = 0; o < t->call.n_out; o++)
        expect_same(t, &other, o, place[o]);
    note(t, place);
    end(t);
    end(&other);
}

/* --- all that a call allows --------------------------------------------------------------------------------------- */

static bool allows(const lk_call *call, int o, int i)
{
    return call->in[i] && lk__call_may_replace(call, call->in[i]->storage, call->out[o]->storage);
}

static bool is_free(const int *place, int o, int i)
{
    for (int before = 0; before < o; before++)
        if (place[before] == i)
            return false;
    return true;
}

/* Every way to put outputs o, o + 1, … where operands are, given where those before them are. */
static void check_from(trial_call *t, int *place, int o, bool any)
{
    if (o == LK_MAX_OUTPUTS || o == t->like->n_out) {
        if (any)
            check_places(t, place);
        return;
    }
    place[o] = NOWHERE;
    check_from(t, place, o + 1, any);
    for (int i = 0; i < t->like->n_in; i++) {
        if (!allows(t->like, o, i) || !is_free(place, o, i))
            continue;
        place[o] = i;
        check_from(t, place, o + 1, true);
    }
}

static void check_call(const context *where, const lk_call *call)
{
    static const struct {
        dnnl_format_tag_t tag;
        const char *name;
    } layouts[] = {{dnnl_nhwc, "nhwc"},
                   {dnnl_nChw4c, "blocks of 4 channels"},
                   {dnnl_nChw8c, "blocks of 8 channels"},
                   {dnnl_nChw16c, "blocks of 16 channels"},
                   {LK_LANES_TAG, "8 images in lanes"},
                   {LK_WIDE_LANES_TAG, "16 images in lanes"}};
    int place[LK_MAX_OUTPUTS];
    trial_call t = {.where = *where, .like = call, .tag = dnnl_format_tag_undef};
    check_from(&t, place, 0, false);
    if (call->device != cpu || !(call->kernel->flags & LK_KERNEL_LAYOUTS))
        return;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int first_only = 0; first_only < 2; first_only++) {
            t = (trial_call){.where = *where, .like = call, .tag = layouts[i].tag, .first_only = first_only};
            t.where.layout = layouts[i].name;
            check_from(&t, place, 0, false);
        }
}

/* --- all cases ---------------------------------------------------------------------------------------------------- */

typedef struct recorded_case {
    const conformance_case *c;
    trial t;
} recorded_case;

static lk_status run_recorded(void *user, lk_tensor *const *in, lk_tensor **out)
{
    recorded_case *recorded = user;
    (void)in;
    out[0] = run_case(recorded->c, &recorded->t);
    return out[0] ? LK_OK : lk_error_status();
}

static bool allows_any(const lk_program *program)
{
    for (int c = 0; c < program->n_calls; c++)
        for (int o = 0; o < program->calls[c].n_out; o++)
            for (int i = 0; i < program->calls[c].n_in; i++)
                if (allows(&program->calls[c], o, i))
                    return true;
    return false;
}

static void check_calls(const context *where, lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++) {
        if (program->calls[i].kernel)
            check_call(where, &program->calls[i]);
        assert_int_equal(lk__run_call(program->device, &program->calls[i]), LK_OK);
    }
}

/* A program is a list of calls: they run here one by one, as on a device's thread. */
static void check_case(lk_device *device, const conformance_case *c, lk_dtype dtype)
{
    operand_set operands = {.dtype = dtype == LK_BF16 ? LK_BF16 : LK_F32};
    recorded_case recorded = {
        c, {.device = device, .peer = device, .dtype = dtype, .layout = DENSE, .operands = &operands}};
    context where = {c, dtype, "as it is"};
    lk_scope_begin();
    lk_error_clear();
    lk_program *program =
        lk_program_record(device, run_recorded, &recorded, NULL, 0, 1, &(lk_program_opts){.fuse = false});
    if (!program && lk_error_status() != LK_ERR_UNSUPPORTED)
        fail_msg("%s %s, %s: %s", lk_op_name(c->op), lk_dtype_name(dtype), c->name, lk_error_message());
    if (program && allows_any(program))
        check_calls(&where, program);
    lk_program_release(program);
    lk_scope_end();
    free_operands(&operands);
}

static void check_all(lk_device *device, lk_dtype dtype)
{
    for (int i = 0; i < CONFORMANCE_CASES; i++)
        if (dtype != LK_BF16 || !(conformance_cases[i].flags & NO_BF16))
            check_case(device, &conformance_cases[i], dtype);
}

static void kernels_for_the_cpu(void **state)
{
    (void)state;
    check_all(cpu, LK_F32);
    check_all(cpu, LK_BF16);
}

static void kernels_in_c(void **state)
{
    (void)state;
    check_all(ref, LK_F32);
    check_all(ref, LK_BF16);
    check_all(ref, LK_F64);
}

/* Of kernels that work on copies, which allow whatever the shapes do, those that the cases have were tried. */
static void expect_tried(const lk_kernel *kernel, int op, lk_dtype dtype)
{
    const tried *have = tried_of(kernel);
    unsigned flags = kernel->flags & LK_KERNEL_IN_PLACE_ANY;
    if (flags == LK_KERNEL_IN_PLACE_ANY || !(kernel->dtypes & LK_DTYPE_BIT(dtype)))
        return;
    if (flags & ~have->flags[dtype])
        fail_msg("%s %s: no case for flags %#x", lk_op_name(op), lk_dtype_name(dtype), flags & ~have->flags[dtype]);
    if ((kernel->flags & LK_KERNEL_LAYOUTS) && (flags & ~have->flags_in_layouts))
        fail_msg("%s: no case in private layouts for flags %#x", lk_op_name(op), flags & ~have->flags_in_layouts);
}

static void every_flag_was_tried(void **state)
{
    (void)state;
    for (const lk_kernel_table *const *table = cpu->backend->tables; *table; table++)
        for (int op = 0; op < LK_OP_COUNT; op++)
            for (lk_dtype dtype = 0; dtype < LK_DTYPE_COUNT; dtype++)
                if ((*table)->rows[op].run)
                    expect_tried(&(*table)->rows[op], op, dtype);
}

static int open_devices(void **state)
{
    (void)state;
    cpu = lk_device_open("cpu");
    ref = lk_device_open("ref");
    if (!cpu || !ref) {
        print_error("%s\n", lk_error_message());
        return -1;
    }
    cpu->backend->enter(cpu, cpu->state);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    cpu->backend->leave(cpu, cpu->state);
    lk_device_release(cpu);
    lk_device_release(ref);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_for_the_cpu),
        cmocka_unit_test(kernels_in_c),
        cmocka_unit_test(every_flag_was_tried),
    };
    return cmocka_run_group_tests_name("in_place_kernels", tests, open_devices, close_devices);
}
