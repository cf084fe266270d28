/* Random programs read and write tensors and views, pushed to several devices by one thread or several. They must leave
 * the same elements as the same operations run one after another on arrays. */
#include "core/engine.h"
#include "lockstep/ops.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 8, VARIABLES = 12, SHARED = 6, STEPS = 4000, MAX_THREADS = 4 };

/* A tensor [SIZE, SIZE] and its expected elements. */
typedef struct variable {
    lk_tensor *tensor;
    int device;
    float expected[SIZE][SIZE];
} variable;

typedef enum part { WHOLE, TURNED, TOP, BOTTOM } part;

typedef struct operand {
    variable *variable;
    part part;
} operand;

/* The data of one thread. It writes its own variables and only reads the shared ones. */
typedef struct world {
    lk_device **devices;
    int n_devices;
    lk_dtype dtype;
    uint32_t random;
    variable own[VARIABLES];
    variable *shared;
    int failures;
    char failure[256];
} world;

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static uint32_t pick(world *w, uint32_t n)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (w->random >> 8) % n;
}

static int rows_of(part p)
{
    return p == TOP || p == BOTTOM ? SIZE / 2 : SIZE;
}

static float *element(operand o, int row, int column)
{
    if (o.part == TURNED)
        return &o.variable->expected[column][row];
    return &o.variable->expected[o.part == BOTTOM ? row + SIZE / 2 : row][column];
}

static float sum(lk_dtype dtype, float a, float b)
{
    return dtype == LK_U8 ? (float)(((int)a + (int)b) % 256) : a + b;
}

static void model_sum(world *w, operand out, operand a, operand b)
{
    for (int r = 0; r < rows_of(out.part); r++)
        for (int c = 0; c < SIZE; c++)
            *element(out, r, c) = sum(w->dtype, *element(a, r, c), *element(b, r, c));
}

static void model_copy(operand out, operand from)
{
    for (int r = 0; r < rows_of(out.part); r++)
        for (int c = 0; c < SIZE; c++)
            *element(out, r, c) = *element(from, r, c);
}

static void model_value(operand out, float value)
{
    for (int r = 0; r < rows_of(out.part); r++)
        for (int c = 0; c < SIZE; c++)
            *element(out, r, c) = value;
}

/* Writes the expected elements in the tensor's dtype and returns their size in bytes. */
static size_t pack(lk_dtype dtype, const variable *v, void *data)
{
    if (dtype == LK_F32) {
        memcpy(data, v->expected, sizeof v->expected);
        return sizeof v->expected;
    }
    for (int i = 0; i < SIZE * SIZE; i++)
        ((uint8_t *)data)[i] = (uint8_t)v->expected[i / SIZE][i % SIZE];
    return SIZE * SIZE;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

static part pick_part(world *w, int rows)
{
    if (rows == SIZE)
        return pick(w, 4) == 0 ? TURNED : WHOLE;
    return pick(w, 2) ? TOP : BOTTOM;
}

static operand pick_output(world *w)
{
    return (operand){&w->own[pick(w, VARIABLES)], (part)pick(w, 4)};
}

/* Picks an operand to read, on `device` or, if that is -1, on any. If it is the variable that `out` writes, it is the
 * same part or one that does not overlap. */
static operand pick_input(world *w, int device, operand out)
{
    variable *v;
    do {
        uint32_t i = pick(w, VARIABLES + SHARED);
        v = i < VARIABLES ? &w->own[i] : &w->shared[i - VARIABLES];
    } while (device >= 0 && v->device != device);
    operand in = {v, pick_part(w, rows_of(out.part))};
    if (v == out.variable && rows_of(out.part) == SIZE)
        in.part = out.part;
    return in;
}

static lk_tensor *view_of(operand o)
{
    switch (o.part) {
    case TURNED:
        return lk_transpose(o.variable->tensor, 0, 1);
    case TOP:
        return lk_slice(o.variable->tensor, 0, 0, SIZE / 2);
    case BOTTOM:
        return lk_slice(o.variable->tensor, 0, SIZE / 2, SIZE);
    default:
        return o.variable->tensor;
    }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void check(world *w, lk_status status, const char *what)
{
    if (status != LK_OK && w->failures++ == 0)
        snprintf(w->failure, sizeof w->failure, "%s: %s", what, lk_error_message());
}

static void check_elements(world *w, const variable *v)
{
    float expected[SIZE * SIZE], read[SIZE * SIZE];
    size_t bytes = pack(w->dtype, v, expected);
    check(w, lk_tensor_read(v->tensor, read, bytes), "read");
    if (memcmp(expected, read, bytes) != 0 && w->failures++ == 0)
        snprintf(w->failure, sizeof w->failure, "the elements of variable %d differ", (int)(v - w->own));
}

static void add(world *w)
{
    operand out = pick_output(w);
    operand a = pick_input(w, out.variable->device, out), b = pick_input(w, out.variable->device, out);
    check(w, lk_add_into(view_of(out), view_of(a), view_of(b)), "add_into");
    model_sum(w, out, a, b);
}

static void copy(world *w)
{
    operand out = pick_output(w), from = pick_input(w, -1, out);
    check(w, lk_copy_into(view_of(out), view_of(from)), "copy_into");
    model_copy(out, from);
}

static void fill(world *w)
{
    operand out = pick_output(w);
    float value = (float)pick(w, 8);
    lk_device *device = w->devices[out.variable->device];
    check(w, lk_copy_into(view_of(out), lk_full(device, w->dtype, LK_SHAPE(rows_of(out.part), SIZE), value)), "fill");
    model_value(out, value);
}

/* Gives the variable a new tensor and releases the old one while it may still be in use. */
static void replace(world *w)
{
    operand out = {&w->own[pick(w, VARIABLES)], WHOLE};
    operand a = pick_input(w, out.variable->device, out), b = pick_input(w, out.variable->device, out);
    lk_tensor *fresh = lk_add(view_of(a), view_of(b));
    check(w, fresh ? LK_OK : lk_error_status(), "add");
    lk_tensor_release(out.variable->tensor);
    out.variable->tensor = lk_tensor_retain(fresh);
    model_sum(w, out, a, b);
}

static void write_elements(world *w)
{
    operand out = {&w->own[pick(w, VARIABLES)], WHOLE};
    float data[SIZE * SIZE];
    model_value(out, (float)pick(w, 8));
    size_t bytes = pack(w->dtype, out.variable, data);
    check(w, lk_tensor_write(out.variable->tensor, data, bytes), "write");
}

static lk_status dawdle(lk_call *call)
{
    for (unsigned char i = 0; i < call->attrs.bytes[0]; i++)
        sched_yield();
    return LK_OK;
}

static const lk_op dawdle_op = {.name = "dawdle", .id = -1};
static const lk_kernel dawdle_kernel = {.run = dawdle};

/* Delays one device, so that others must wait for it. */
static void delay(world *w)
{
    lk_call call = {.op = &dawdle_op, .kernel = &dawdle_kernel, .device = w->devices[pick(w, (uint32_t)w->n_devices)]};
    call.attrs.bytes[0] = (unsigned char)pick(w, 64);
    check(w, lk__engine_push(&call), "delay");
}

static void step(world *w)
{
    static void (*const kinds[])(world *) = {add, add, add, add, add, add, copy, copy, copy, copy, fill, fill, replace};
    uint32_t kind = pick(w, 64);
    lk_scope_begin();
    if (kind == 0)
        check_elements(w, &w->own[pick(w, VARIABLES)]);
    else if (kind == 1)
        write_elements(w);
    else if (kind < 6)
        delay(w);
    else
        kinds[pick(w, sizeof kinds / sizeof *kinds)](w);
    lk_scope_end();
}

/* --- worlds ------------------------------------------------------------------------------------------------------- */

static void make_variables(lk_device **devices, int n_devices, lk_dtype dtype, int n, variable *variables)
{
    for (int i = 0; i < n; i++) {
        variable *v = &variables[i];
        v->device = i % n_devices;
        model_value((operand){v, WHOLE}, (float)(i % 8));
        model_value((operand){v, TOP}, (float)((i + 3) % 8));
        float data[SIZE * SIZE];
        pack(dtype, v, data);
        v->tensor = lk_tensor_from(devices[v->device], dtype, LK_SHAPE(SIZE, SIZE), data);
        assert_non_null(v->tensor);
    }
}

static void release_variables(int n, variable *variables)
{
    for (int i = 0; i < n; i++)
        lk_tensor_release(variables[i].tensor);
}

static void *live(void *argument)
{
    world *w = argument;
    for (int i = 0; i < STEPS && w->failures == 0; i++)
        step(w);
    for (int i = 0; i < VARIABLES; i++)
        check_elements(w, &w->own[i]);
    return NULL;
}

static uint64_t hash(uint64_t state, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        state = (state ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return state;
}

/* Runs `n` worlds at once, each in its own thread, and returns a hash of their final elements. */
static uint64_t run_worlds(const char *spec, lk_dtype dtype, int n, uint32_t seed)
{
    static world worlds[MAX_THREADS];
    lk_device *devices[8];
    variable shared[SHARED];
    pthread_t threads[MAX_THREADS];
    int n_devices;
    assert_int_equal(lk_devices_open(spec, devices, 8, &n_devices), LK_OK);
    make_variables(devices, n_devices, dtype, SHARED, shared);
    for (int i = 0; i < n; i++) {
        worlds[i] = (world){
            .devices = devices, .n_devices = n_devices, .dtype = dtype, .random = seed + (uint32_t)i, .shared = shared};
        make_variables(devices, n_devices, dtype, VARIABLES, worlds[i].own);
        assert_int_equal(pthread_create(&threads[i], NULL, live, &worlds[i]), 0);
    }
    uint64_t state = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < n; i++) {
        if (worlds[i].failures)
            fail_msg("%s, thread %d, seed %u: %s", spec, i, seed, worlds[i].failure);
        for (int v = 0; v < VARIABLES; v++)
            state = hash(state, worlds[i].own[v].expected, sizeof worlds[i].own[v].expected);
        release_variables(VARIABLES, worlds[i].own);
    }
    release_variables(SHARED, shared);
    assert_int_equal(lk_wait_all(), LK_OK);
    for (int i = 0; i < n_devices; i++) {
        int64_t now, peak;
        lk_device_memory(devices[i], &now, &peak);
        assert_int_equal(now, 0);
        assert_true(peak > 0);
    }
    lk_devices_release(devices, n_devices);
    return state;
}

static void one_thread_gives_the_serial_result(void **state)
{
    (void)state;
    static const char *const specs[] = {"ref", "2xref", "3xref", "2xcpu,2xref", "6xref"};
    for (uint32_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        run_worlds(specs[i], LK_U8, 1, 100 + i);
        run_worlds(specs[i], LK_F32, 1, 200 + i);
    }
}

static void several_threads_give_the_serial_result(void **state)
{
    (void)state;
    run_worlds("2xref", LK_U8, 2, 300);
    run_worlds("4xref", LK_U8, 4, 400);
    run_worlds("2xcpu,2xref", LK_F32, 3, 500);
    run_worlds("6xcpu", LK_F32, 4, 600);
}

/* --- both engines ------------------------------------------------------------------------------------------------- */

static uint64_t hash_of_network(const char *spec, uint64_t state)
{
    lk_device *device = lk_device_open(spec);
    assert_non_null(device);
    lk_scope_begin();
    lk_tensor *x = lk_normal(device, LK_F32, LK_SHAPE(5, 2, 9, 7), 0, 1, (lk_random_key){.seed = 1});
    lk_tensor *w = lk_normal(device, LK_F32, LK_SHAPE(4, 2, 3, 3), 0, 1, (lk_random_key){.seed = 2});
    lk_tensor *b = lk_uniform(device, LK_F32, LK_SHAPE(4), -1, 1, (lk_random_key){.seed = 3});
    lk_tensor *dense = lk_normal(device, LK_F32, LK_SHAPE(24, 6), 0, 1, (lk_random_key){.seed = 4});
    for (int i = 0; i < 50; i++) {
        lk_tensor *h = lk_relu(lk_conv2d(x, w, b, NULL));
        h = lk_flatten(lk_max_pool2d(h, &(lk_pool2d_opts){.kernel = {2, 2}}));
        h = lk_log_softmax(lk_matmul(h, dense), -1);
        float y[5 * 6];
        assert_int_equal(lk_tensor_read(h, y, sizeof y), LK_OK);
        state = hash(state, y, sizeof y);
        assert_int_equal(lk_sgd_update(w, w, 0.01), LK_OK);
    }
    lk_scope_end();
    lk_device_release(device);
    return state;
}

static uint64_t digest(void)
{
    uint64_t state = run_worlds("2xcpu,2xref", LK_F32, 1, 700) ^ run_worlds("3xref", LK_U8, 1, 800);
    return hash_of_network("cpu", hash_of_network("ref", state));
}

/* Runs this program with --digest under the synchronous engine, and returns the digest that it prints. */
static uint64_t digest_of_synchronous_engine(void)
{
    char program[4096], command[4200];
    unsigned long long value = 0;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    snprintf(command, sizeof command, "LOCKSTEP_ENGINE=sync '%s' --digest", program);
    FILE *child = popen(command, "r");
    assert_non_null(child);
    assert_int_equal(fscanf(child, "%llx", &value), 1);
    assert_int_equal(pclose(child), 0);
    return value;
}

static void the_synchronous_engine_gives_the_same_bits(void **state)
{
    (void)state;
    assert_false(lk__engine_is_sync());
    assert_true(digest() == digest_of_synchronous_engine());
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--digest") == 0) {
        printf("%llx\n", (unsigned long long)digest());
        return lk__engine_is_sync() ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_gives_the_serial_result),
        cmocka_unit_test(several_threads_give_the_serial_result),
        cmocka_unit_test(the_synchronous_engine_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
