/* Kernels marked LK_KERNEL_IN_PLACE give the same result if they write over an operand as in other memory, for the
 * calls of all conformance cases, in every dtype and private layout. $LOCKSTEP_TEST_DEVICES names another device than
 * cpu. */
#include "conformance_cases.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/tensor.h"
#include "cpu/onednn/cpu_convert.h"
#include "cuda/cuda_state.h"
#include "program/program.h"
#include "program/in_place.h"
#include "cuda/cuda_operands.h"
#include "core/shape.h"

enum { KERNELS = 4 * LK_OP_COUNT, NOWHERE = -1 };

/* The in-place flags of a kernel that were tried, for each dtype. */
typedef struct tried {
    const lk_kernel *kernel;
    unsigned flags[LK_DTYPE_COUNT], flags_of_images, flags_in_layouts;
} tried;

static tried all_tried[KERNELS];
static lk_device *tested, *ref;

static tried *tried_of(const lk_kernel *kernel)
{
    int i = 0;
    while (all_tried[i].kernel && all_tried[i].kernel != kernel)
        i++;
    assert_true(i < KERNELS - 1);
    all_tried[i].kernel = kernel;
    return &all_tried[i];
}

/* --- memory of a device ------------------------------------------------------------------------------------------- */

static void *new_memory(lk_device *device, size_t bytes)
{
    void *data = device->backend->alloc(device, bytes > 0 ? bytes : 1);
    assert_non_null(data);
    return data;
}

static void copy(lk_device *device, void *to, const void *from, size_t bytes)
{
    if (device->backend->offload)
        assert_int_equal(device->backend->offload->bring(device, to, device, from, bytes), LK_OK);
    else
        memcpy(to, from, bytes);
}

/* A copy of the storage's content in host memory. */
static char *contents(const lk_storage *storage)
{
    const lk_offload *offload = storage->device->backend->offload;
    char *text = lk__alloc_aligned(storage->used > 0 ? storage->used : 1);
    assert_non_null(text);
    if (!offload)
        return memcpy(text, storage->data, storage->used);
    assert_int_equal(offload->drain(storage->device), LK_OK);
    assert_int_equal(offload->read(storage->device, storage->data, text, storage->used), LK_OK);
    return text;
}

/* --- a call on tensors of its own --------------------------------------------------------------------------------- */

/* The call, for messages. */
typedef struct context {
    const conformance_case *c;
    lk_dtype dtype;
    const char *layout;
} context;

typedef enum which { ALL, FIRST, OTHERS } which;

/* A copy of the call `like`. Operands of the result's shape are converted to layout `tag`, all of them or those that
 * `which` selects; dnnl_format_tag_undef: none. */
typedef struct trial_call {
    context where;
    const lk_call *like;
    dnnl_format_tag_t tag;
    which which;
    lk_call call;
    lk_tensor in[LK_MAX_INPUTS], out[LK_MAX_OUTPUTS];
    lk_storage in_storage[LK_MAX_INPUTS], out_storage[LK_MAX_OUTPUTS];
} trial_call;

static bool is_like_the_result(const lk_call *call, const lk_tensor *x)
{
    bool fits = x->dtype == LK_F32 || (call->device->backend->offload && x->dtype == call->dtype);
    return fits && x->shape.ndim == 4 && count_of(x->shape) > 0 && lk__shape_equal(x->shape, call->out[0]->shape);
}

static bool is_to_be_laid_out(const trial_call *t, int i)
{
    bool asked = t->which == ALL || (t->which == FIRST) == (i == 0);
    return t->tag != dnnl_format_tag_undef && asked && is_like_the_result(t->like, t->like->in[i]);
}

/* Copies x to a layout of the CPU's kernels, or to channels-last on a GPU. Returns the layout's size in bytes. */
static size_t lay_out(const trial_call *t, const lk_tensor *x, lk_storage *storage)
{
    lk_device *device = t->like->device;
    if (device->backend->offload) {
        size_t bytes = (size_t)lk_tensor_count(x) * lk_dtype_size(x->dtype);
        lk_gpu_view view = {.data = new_memory(device, bytes), .dtype = x->dtype};
        lk__cuda_strides(x->shape, lk__cuda_channels_last, view.stride);
        assert_int_equal(lk__cuda_convert(t->like, x->shape, view, lk__cuda_view(x)), LK_OK);
        storage->data = view.data;
        storage->layout = lk__cuda_channels_last;
        return bytes;
    }
    const lk_layout *layout;
    assert_int_equal(lk__layout_tagged(x->shape, LK_F32, t->tag, &layout), LK_OK);
    storage->data = new_memory(device, layout->bytes);
    storage->layout = layout;
    assert_int_equal(lk__cpu_convert(device, x, layout, storage->data), LK_OK);
    return layout->bytes;
}

static void copy_operand(trial_call *t, int i)
{
    lk_tensor *x = t->like->in[i];
    lk_storage *storage = &t->in_storage[i];
    *storage = (lk_storage){.device = t->like->device, .bytes = x->storage->bytes, .used = x->storage->used};
    if (is_to_be_laid_out(t, i)) {
        storage->used = lay_out(t, x, storage);
    } else {
        storage->layout = x->storage->layout;
        storage->data = new_memory(storage->device, storage->used);
        copy(storage->device, storage->data, x->storage->data, storage->used);
    }
    storage->planned = storage->used;
    t->in[i] = lk__tensor_alias(x);
    t->in[i].storage = storage;
    t->call.in[i] = &t->in[i];
}

/* over[o]: the operand that output o overwrites, or NOWHERE. */
static void start(trial_call *t, const int *over)
{
    t->call = *t->like;
    for (int i = 0; i < t->call.n_in; i++)
        if (t->like->in[i])
            copy_operand(t, i);
    for (int o = 0; o < t->call.n_out; o++) {
        lk_storage *storage = &t->out_storage[o];
        *storage = (lk_storage){.device = t->like->device, .bytes = t->like->out[o]->storage->bytes};
        if (over[o] != NOWHERE) {
            storage->data = t->in_storage[over[o]].data;
            storage->planned = t->in_storage[over[o]].planned;
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
    lk_device *device = t->like->device;
    for (int i = 0; i < t->call.n_in; i++)
        if (t->like->in[i])
            device->backend->free(device, t->in_storage[i].data);
    for (int o = 0; o < t->call.n_out; o++)
        lk__allocator_put(device->allocator, t->out_storage[o].block);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static bool is_float_dtype(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_BF16 || dtype == LK_F64;
}

/* Compares padding as well. All NaNs are equal. */
static void expect_same(const trial_call *in_place, const trial_call *apart, int o, int input)
{
    const context *x = &in_place->where;
    const lk_storage *a = &in_place->out_storage[o], *b = &apart->out_storage[o];
    lk_dtype dtype = in_place->out[o].dtype;
    size_t size = lk_dtype_size(dtype);
    assert_ptr_equal(a->layout, b->layout);
    assert_int_equal(a->used, b->used);
    char *a_contents = contents(a), *b_contents = contents(b);
    for (size_t i = 0; i < a->used / size; i++) {
        const char *have = a_contents + i * size, *want = b_contents + i * size;
        bool both_nan = is_float_dtype(dtype) && isnan(value_at(have, dtype, 0)) && isnan(value_at(want, dtype, 0));
        if (!both_nan && memcmp(have, want, size) != 0)
            fail_msg("%s %s, %s, %s: output %d, over input %d (-1: its own), is %.17g at element %zu, but "
                     "%.17g in memory of its own",
                     lk_op_name(x->c->op), lk_dtype_name(x->dtype), x->c->name, x->layout, o, input,
                     value_at(have, dtype, 0), i, value_at(want, dtype, 0));
    }
    lk__free_aligned(a_contents);
    lk__free_aligned(b_contents);
}

static void note(const trial_call *t, const int *over)
{
    tried *kernel = tried_of(t->like->kernel);
    for (int o = 0; o < t->call.n_out; o++) {
        if (over[o] == NOWHERE)
            continue;
        kernel->flags[t->call.dtype] |= LK_KERNEL_IN_PLACE(o, over[o]);
        if (is_like_the_result(t->like, t->like->in[over[o]]))
            kernel->flags_of_images |= LK_KERNEL_IN_PLACE(o, over[o]);
        if (t->in_storage[over[o]].layout)
            kernel->flags_in_layouts |= LK_KERNEL_IN_PLACE(o, over[o]);
    }
}

static void check_overwrites(trial_call *t, const int *over)
{
    static const int apart[LK_MAX_OUTPUTS] = {NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE};
    trial_call other = *t;
    start(t, over);
    start(&other, apart);
    for (int o = 0; o < t->call.n_out; o++)
        expect_same(t, &other, o, over[o]);
    note(t, over);
    end(t);
    end(&other);
}

/* --- all that a call allows --------------------------------------------------------------------------------------- */

static bool allows(const lk_call *call, int o, int i)
{
    return call->in[i] && lk__call_may_replace(call, call->in[i]->storage, call->out[o]->storage);
}

static bool is_free(const int *over, int o, int i)
{
    for (int before = 0; before < o; before++)
        if (over[before] == i)
            return false;
    return true;
}

/* Checks every way for outputs o, o + 1, … to overwrite operands, given the choices for the outputs before them. */
static void check_from(trial_call *t, int *over, int o, bool any)
{
    if (o == LK_MAX_OUTPUTS || o == t->like->n_out) {
        if (any)
            check_overwrites(t, over);
        return;
    }
    over[o] = NOWHERE;
    check_from(t, over, o + 1, any);
    for (int i = 0; i < t->like->n_in; i++) {
        if (!allows(t->like, o, i) || !is_free(over, o, i))
            continue;
        over[o] = i;
        check_from(t, over, o + 1, true);
    }
}

typedef struct named_tag {
    dnnl_format_tag_t tag;
    const char *name;
} named_tag;

static void check_in_layouts(const context *where, const lk_call *call, const named_tag *tags, int n)
{
    int over[LK_MAX_OUTPUTS];
    for (int i = 0; i < n; i++)
        for (which some = ALL; some <= OTHERS; some++) {
            trial_call t = {.where = *where, .like = call, .tag = tags[i].tag, .which = some};
            t.where.layout = tags[i].name;
            check_from(&t, over, 0, false);
        }
}

static void check_call(const context *where, const lk_call *call)
{
    static const named_tag of_processor[] = {{dnnl_nhwc, "nhwc"},
                                             {dnnl_nChw4c, "blocks of 4 channels"},
                                             {dnnl_nChw8c, "blocks of 8 channels"},
                                             {dnnl_nChw16c, "blocks of 16 channels"},
                                             {LK_LANES_TAG, "8 images in lanes"},
                                             {LK_WIDE_LANES_TAG, "16 images in lanes"}};
    int over[LK_MAX_OUTPUTS];
    trial_call t = {.where = *where, .like = call, .tag = dnnl_format_tag_undef};
    check_from(&t, over, 0, false);
    if (call->device != tested || !(call->kernel->flags & LK_KERNEL_LAYOUTS))
        return;
    bool gpu = call->device->backend->offload;
    check_in_layouts(where, call, of_processor, gpu ? 1 : (int)(sizeof of_processor / sizeof *of_processor));
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
    if (program->device->backend->offload)
        assert_int_equal(program->device->backend->offload->drain(program->device), LK_OK);
}

/* Records the case as a program and runs its calls one by one, as a device's thread does. */
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
    assert_int_equal(lk_device_sync(device), LK_OK);
    if (program && allows_any(program))
        check_calls(&where, program);
    lk_program_release(program);
    lk_scope_end();
    free_operands(&operands);
}

static void check_all(lk_device *device, lk_dtype dtype)
{
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        const conformance_case *c = &conformance_cases[i];
        bool takes = dtype == LK_F32 || (dtype == LK_BF16 && !(c->flags & NO_BF16)) ||
                     (dtype == LK_F64 && lk_op_implementation(c->op, lk_device_kind(device), LK_F64));
        if (takes)
            check_case(device, c, dtype);
    }
}

static void kernels_for_the_device_work_in_place(void **state)
{
    (void)state;
    check_all(tested, LK_F32);
    check_all(tested, LK_BF16);
    if (tested->backend->offload)
        check_all(tested, LK_F64);
}

static void kernels_in_c_work_in_place(void **state)
{
    (void)state;
    if (tested->backend->offload)
        skip(); /* the run without LOCKSTEP_TEST_DEVICES tests them */
    check_all(ref, LK_F32);
    check_all(ref, LK_BF16);
    check_all(ref, LK_F64);
}

/* All flags of a kernel must have been tried. On a GPU every kernel takes layouts, so only flags that some case has
 * images for are expected in layouts. */
static void expect_tried(const lk_kernel *kernel, int op, lk_dtype dtype)
{
    const tried *have = tried_of(kernel);
    unsigned all = ~(LK_KERNEL_IN_PLACE(0, 0) - 1), flags = kernel->flags & all;
    if (!(kernel->dtypes & LK_DTYPE_BIT(dtype)))
        return;
    if (flags & ~have->flags[dtype])
        fail_msg("%s %s: no case for flags %#x", lk_op_name(op), lk_dtype_name(dtype), flags & ~have->flags[dtype]);
    unsigned in_layouts = tested->backend->offload ? have->flags_of_images : flags;
    if ((kernel->flags & LK_KERNEL_LAYOUTS) && (in_layouts & ~have->flags_in_layouts))
        fail_msg("%s: no case in private layouts for flags %#x", lk_op_name(op), flags & ~have->flags_in_layouts);
}

static void every_flag_was_tried(void **state)
{
    (void)state;
    for (const lk_kernel_table *const *table = tested->backend->tables; *table; table++)
        for (int op = 0; op < LK_OP_COUNT; op++)
            for (lk_dtype dtype = 0; dtype < LK_DTYPE_COUNT; dtype++)
                if ((*table)->rows[op].run)
                    expect_tried(&(*table)->rows[op], op, dtype);
}

static int open_devices(void **state)
{
    (void)state;
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    tested = lk_device_open(spec ? spec : "cpu");
    ref = lk_device_open("ref");
    if (!tested || !ref || lk_device_sync(tested) != LK_OK) {
        print_error("%s\n", lk_error_message());
        return -1;
    }
    tested->backend->enter(tested, tested->state);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    if (tested->backend->leave)
        tested->backend->leave(tested, tested->state);
    lk_device_release(tested);
    lk_device_release(ref);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_for_the_device_work_in_place),
        cmocka_unit_test(kernels_in_c_work_in_place),
        cmocka_unit_test(every_flag_was_tried),
    };
    return cmocka_run_group_tests_name("in_place_kernels", tests, open_devices, close_devices);
}
