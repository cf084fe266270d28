/* Measures operators one by one, in the sizes of the networks, called eagerly on one device: f32, 32 images.
 *
 * forward: the operator alone. backward: its gradients with respect to all operands, by the tape. Values are the best
 * of several rounds, in processor time, because other programs may use the core too. --quick: one round. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 11, IMAGES = 32 };

typedef enum kind { CONV, MATMUL, BATCH_NORM, RELU, ADD, DROPOUT, MAX_POOL, AVG_POOL, GLOBAL_POOL, SOFTMAX } kind;

static const char *const names[] = {"conv2d",  "matmul",     "batch_norm", "relu",       "add",
                                    "dropout", "max_pool2d", "avg_pool2d", "global_avg", "log_softmax"};

typedef struct problem {
    kind kind;
    int channels, size;          /* of an image; matmul, softmax: channels are columns, size is not used */
    int filters, kernel, stride; /* of conv2d; matmul: filters are columns of the product */
} problem;

static const problem problems[] = {
    {CONV, 1, 28, 20, 3, 1},      {CONV, 20, 13, 50, 5, 1},    {CONV, 1, 28, 32, 3, 1},
    {CONV, 64, 28, 64, 3, 1},     {CONV, 64, 28, 128, 3, 2},   {CONV, 128, 14, 128, 3, 1},
    {CONV, 256, 7, 256, 3, 1},    {CONV, 512, 4, 512, 3, 1},   {CONV, 256, 7, 512, 1, 2},
    {CONV, 160, 28, 160, 3, 1},   {CONV, 320, 14, 320, 3, 1},  {CONV, 640, 7, 640, 3, 1},
    {MATMUL, 800, 0, 128, 0, 0},  {MATMUL, 5408, 0, 64, 0, 0}, {BATCH_NORM, 64, 28, 0, 0, 0},
    {RELU, 64, 28, 0, 0, 0},      {ADD, 64, 28, 0, 0, 0},      {DROPOUT, 160, 28, 0, 0, 0},
    {MAX_POOL, 160, 28, 0, 2, 2}, {AVG_POOL, 20, 26, 0, 2, 2}, {GLOBAL_POOL, 512, 4, 0, 0, 0},
    {SOFTMAX, 10, 0, 0, 0, 0},
};

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { X, SECOND, THIRD, INDICES, OPERANDS };

static lk_tensor *random_tensor(lk_device *device, lk_shape shape, uint64_t seed)
{
    return lk_normal(device, LK_F32, shape, 0, 1, (lk_random_key){.seed = seed});
}

static void make_operands(lk_device *device, const problem *p, lk_tensor **in)
{
    bool is_flat = p->kind == MATMUL || p->kind == SOFTMAX;
    lk_shape image = LK_SHAPE(IMAGES, p->channels, p->size, p->size);
    in[X] = random_tensor(device, is_flat ? LK_SHAPE(IMAGES, p->channels) : image, 1);
    if (p->kind == CONV)
        in[SECOND] = random_tensor(device, LK_SHAPE(p->filters, p->channels, p->kernel, p->kernel), 2);
    if (p->kind == MATMUL)
        in[SECOND] = random_tensor(device, LK_SHAPE(p->channels, p->filters), 2);
    if (p->kind == ADD)
        in[SECOND] = random_tensor(device, image, 2);
    if (p->kind == BATCH_NORM) {
        in[SECOND] = lk_ones(device, LK_F32, LK_SHAPE(p->channels));
        in[THIRD] = lk_zeros(device, LK_F32, LK_SHAPE(p->channels));
    }
    in[INDICES] = lk_arange(device, LK_I64, IMAGES, 0, 1);
}

static lk_tensor *call(const problem *p, lk_tensor *const *in)
{
    const lk_pool2d_opts pool = {.kernel = {p->kernel, p->kernel}};
    /* Padding of the networks: none in LeNet and keras-cnn, one pixel for other 3x3 kernels. */
    int64_t padding = p->kernel == 3 && p->channels > 1 ? 1 : 0;
    const lk_conv2d_opts conv = {.stride = {p->stride, p->stride}, .padding = {padding, padding}};
    switch (p->kind) {
    case CONV:
        return lk_conv2d(in[X], in[SECOND], NULL, &conv);
    case MATMUL:
        return lk_matmul(in[X], in[SECOND]);
    case BATCH_NORM:
        return lk_batch_norm(in[X], in[SECOND], in[THIRD], 1e-5, NULL);
    case RELU:
        return lk_relu(in[X]);
    case ADD:
        return lk_add(in[X], in[SECOND]);
    case DROPOUT:
        return lk_dropout(in[X], in[INDICES], 0.1, (lk_random_key){.seed = 3});
    case MAX_POOL:
        return lk_max_pool2d(in[X], &pool);
    case AVG_POOL:
        return lk_avg_pool2d(in[X], &pool);
    case GLOBAL_POOL:
        return lk_global_avg_pool2d(in[X]);
    case SOFTMAX:
        return lk_log_softmax(in[X], 1);
    }
    return NULL;
}

/* Seconds and flops of a forward pass, and of its backward pass. */
typedef struct cost {
    double seconds, flops;
} cost;

static void keep_better(cost *best, cost now)
{
    if (best->seconds == 0 || now.seconds < best->seconds)
        *best = now;
}

static cost stop(lk_device *device, cost began)
{
    lk_device_sync(device);
    return (cost){processor_seconds() - began.seconds, lk_device_flops(device) - began.flops};
}

static cost start(lk_device *device)
{
    return (cost){processor_seconds(), lk_device_flops(device)};
}

static lk_status run_once(lk_device *device, const problem *p, lk_tensor *const *in, cost *forward, cost *backward)
{
    int n = in[THIRD] ? 3 : in[SECOND] ? 2 : 1;
    lk_tensor *gradients[OPERANDS] = {NULL};
    lk_status status = LK_ERR_MEMORY;
    lk_scope_begin();
    lk_tape *tape = lk_tape_begin(in, n);
    cost began = start(device);
    lk_tensor *y = call(p, in);
    keep_better(forward, stop(device, began));
    lk_tensor *seed = y ? lk_ones(device, LK_F32, lk_tensor_shape(y)) : NULL;
    if (seed && (status = lk_device_sync(device)) == LK_OK) {
        began = start(device);
        status = lk_tape_gradient(tape, y, seed, gradients);
        keep_better(backward, stop(device, began));
    }
    lk_tape_release(tape);
    lk_scope_end();
    return status == LK_OK ? lk_device_sync(device) : lk_error_status();
}

static void print_cost(cost best)
{
    printf(" %8.3f | %8.1f |", 1e3 * best.seconds, 1e-9 * best.flops / best.seconds);
}

static void print_problem(const problem *p)
{
    char text[64] = "";
    if (p->kind == CONV)
        snprintf(text, sizeof text, "%d to %d, %dx%d, kernel %d, stride %d", p->channels, p->filters, p->size, p->size,
                 p->kernel, p->stride);
    else if (p->kind == MATMUL)
        snprintf(text, sizeof text, "%d to %d", p->channels, p->filters);
    else if (p->size > 0)
        snprintf(text, sizeof text, "%d, %dx%d", p->channels, p->size, p->size);
    else
        snprintf(text, sizeof text, "%d", p->channels);
    printf("| %-11s | %-38s |", names[p->kind], text);
}

static lk_status measure(lk_device *device, const problem *p, int rounds)
{
    lk_tensor *in[OPERANDS] = {NULL};
    cost forward = {0}, backward = {0};
    lk_scope_begin();
    make_operands(device, p, in);
    lk_status status = lk_device_sync(device);
    for (int i = 0; i < rounds && status == LK_OK; i++)
        status = run_once(device, p, in, &forward, &backward);
    lk_scope_end();
    if (status != LK_OK)
        return status;
    print_problem(p);
    print_cost(forward);
    print_cost(backward);
    printf("\n");
    return fflush(stdout) == 0 ? LK_OK : LK_ERR_IO;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    lk_device *device = lk_device_open("cpu");
    lk_status status = device ? LK_OK : lk_error_status();
    printf("operators, %d images, milliseconds and GFLOP/s; best of %d, processor time\n\n", IMAGES,
           quick ? 1 : ROUNDS);
    printf("| %-11s | %-38s | %8s | %8s | %8s | %8s |\n", "operator", "channels, size", "forward", "GFLOP/s",
           "backward", "GFLOP/s");
    printf("| ----------- | -------------------------------------- | -------- | -------- | -------- | -------- |\n");
    for (size_t i = 0; i < sizeof problems / sizeof *problems && status == LK_OK; i++)
        status = measure(device, &problems[i], quick ? 1 : ROUNDS);
    lk_device_release(device);
    if (status == LK_OK)
        return 0;
    fprintf(stderr, "bench_operators: %s\n", lk_error_message());
    return 1;
}
