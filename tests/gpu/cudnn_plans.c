/* Asks the real cuDNN, without a GPU and without a driver, for the plan of every convolution of the four networks and
 * of others, as the plug-in would on GPUs that files of tests/gpu/gpus describe. Fails if a convolution would run on
 * the slow kernels of gpu_direct_conv.cu, if its engine adds in no fixed order, or if it needs too much workspace.
 * Prints the engines, whether GPUs of one architecture have the same ones, and which do not take merged shards. Then
 * pins engines of some convolutions by their names, as a tuning does.
 *
 *     cudnn_plans FOLDER [GPU [DTYPE]]      all GPUs and dtypes, or one of each: "h100 bf16" */
#include "core/engine.h"
#include "core/op.h"
#include "cuda/cuda_plans.h"
#include "cuda/plugin/gpu_conv_plan.h"
#include "ops/geometry.h"
#include "ops/ops.h"
#include "lockstep/autograd.h"
#include "lockstep/nn.h"
#include "lockstep/tensor.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77, MAX_CONVOLUTIONS = 256, SWEEP = 24, OLDEST_CUDNN = 90800, SHARDS = 8, PINNED = 5 };

/* A convolution, and where it stands. */
typedef struct wanted {
    lk_gpu_conv_direction direction;
    bool bias;
    lk_geometry geometry;
    const char *from;
} wanted;

static struct {
    wanted list[MAX_CONVOLUTIONS];
    int n;
} all;

static char message[512];

/* The plug-in's own is compiled with CUDA. */
lk_gpu_status lk__gpu_fail(lk_gpu_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

static void give_up(const char *what)
{
    fprintf(stderr, "cudnn_plans: %s: %s\n", what, *message ? message : lk_error_message());
    exit(1);
}

/* --- which convolutions ------------------------------------------------------------------------------------------- */

static void want(lk_gpu_conv_direction direction, bool bias, const lk_geometry *geometry, const char *from)
{
    for (int i = 0; i < all.n; i++)
        if (all.list[i].direction == direction && all.list[i].bias == bias &&
            memcmp(&all.list[i].geometry, geometry, sizeof *geometry) == 0)
            return;
    if (all.n == MAX_CONVOLUTIONS)
        give_up("too many convolutions");
    all.list[all.n++] = (wanted){direction, bias, *geometry, from};
}

/* Takes the place of running a call. */
static lk_status note_call(void *from, const lk_call *call)
{
    const lk_conv2d_opts *conv = LK_ATTRS(call, lk_conv2d_opts);
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk_geometry geometry;
    switch (call->op->id) {
    case LK_OP_CONV2D:
        geometry = lk__geometry_of_conv(call->in[0]->shape, call->in[1]->shape, call->out[0]->shape, conv);
        want(LK_GPU_FORWARD, call->in[2] != NULL, &geometry, from);
        break;
    case LK_OP_CONV2D_INPUT_GRAD:
        geometry = lk__geometry_of_conv(call->out[0]->shape, call->in[1]->shape, call->in[0]->shape, &attrs->conv);
        want(LK_GPU_TO_INPUT, false, &geometry, from);
        break;
    case LK_OP_CONV2D_WEIGHT_GRAD:
        geometry = lk__geometry_of_conv(call->in[1]->shape, call->out[0]->shape, call->in[0]->shape, &attrs->conv);
        want(LK_GPU_TO_WEIGHTS, false, &geometry, from);
        break;
    default:
        break;
    }
    return LK_OK;
}

/* The forward and backward pass of a shard of `images` images; nothing is computed. */
static void want_network(lk_device *device, const char *name, int64_t images)
{
    lk_model *model = lk_model_new(name, (lk_model_input){1, 28, 28, 10});
    lk_tensor *variables[256], *gradients[256];
    if (!model || lk_model_init(model, device, 0, variables) != LK_OK)
        give_up(name);
    lk_capture before = lk__capture_set((lk_capture){note_call, (void *)(uintptr_t)name});
    lk_scope_begin();
    lk_tensor *x = lk_zeros(device, LK_F32, LK_SHAPE(images, 1, 28, 28));
    lk_tensor *indices = lk_zeros(device, LK_I64, LK_SHAPE(images));
    lk_tape *tape = lk_tape_begin(variables, lk_model_parameter_count(model));
    lk_tensor *logits =
        lk_model_forward(model, variables, x, &(lk_forward_opts){.training = true, .indices = &indices});
    if (!logits || lk_tape_gradient(tape, logits, NULL, gradients) != LK_OK)
        give_up(name);
    lk_tape_release(tape);
    lk_scope_end();
    lk__capture_set(before);
    for (int i = 0; i < lk_model_variable_count(model); i++)
        lk_tensor_release(variables[i]);
    lk_model_release(model);
}

/* The next number of a fixed series (Numerical Recipes' generator), below `end`. */
static int64_t next_below(int64_t end)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (int64_t)(state >> 8) % end;
}

/* Other sizes: odd ones, groups, strides, dilation, 1 to 512 images. */
static void want_others(void)
{
    static const int64_t images[] = {1, 3, 8, 17, 64, 512}, channels[] = {1, 3, 8, 16, 24, 64, 100},
                         kernels[] = {1, 2, 3, 5, 7}, groups[] = {1, 1, 1, 2, 4};
    for (int i = 0; i < SWEEP; i++) {
        lk_geometry g = {.images = images[next_below(6)], .groups = groups[next_below(5)]};
        g.channels = channels[next_below(7)] * g.groups;
        g.filters = channels[next_below(7)] * g.groups;
        for (int axis = 0; axis < 2; axis++) {
            g.kernel[axis] = kernels[next_below(5)];
            g.stride[axis] = 1 + next_below(2);
            g.dilation[axis] = 1 + next_below(5) / 4;
            g.padding[axis] = next_below(g.kernel[axis]);
            g.in[axis] = 9 + next_below(25);
            g.out[axis] =
                (g.in[axis] + 2 * g.padding[axis] - g.dilation[axis] * (g.kernel[axis] - 1) - 1) / g.stride[axis] + 1;
        }
        for (int direction = LK_GPU_FORWARD; direction <= LK_GPU_TO_WEIGHTS; direction++)
            want(direction, false, &g, "others");
    }
}

/* --- a described GPU ---------------------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t describe_gpu(const char *folder, const char *name)
{
    char path[4096], json[4096];
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(json, 1, sizeof json, file) : 0;
    cudnnBackendDescriptor_t gpu = NULL;
    if (file)
        fclose(file);
    if (lk__gpu_check_dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &gpu), "a GPU") ||
        lk__gpu_check_dnn(
            cudnnBackendSetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)n, json),
            "the description of a GPU") ||
        lk__gpu_check_dnn(cudnnBackendFinalize(gpu), "the description of a GPU"))
        give_up(path);
    return gpu;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

typedef enum precision { F32, TF32, BF16, PRECISIONS } precision;
static const char *const precision_names[] = {"f32", "tf32", "bf16"};
static const char *const direction_names[] = {"forward", "input", "weights"};

/* Returns whether the plan's engine, with its knobs, also takes several shards at once. */
static bool takes_parts(const lk_gpu_libraries *libraries, lk_gpu_conv_problem p, const lk_gpu_conv_plan *of_part)
{
    lk_gpu_conv_shape shape = *p.shape;
    lk_gpu_conv_plan *plan;
    p.shape = &shape;
    shape.parts = SHARDS;
    if (lk__gpu_conv_plan_new(libraries, &p, of_part, &plan) != LK_GPU_OK)
        give_up("a plan for merged shards");
    bool found = plan->plan != NULL;
    lk__gpu_conv_plan_free(plan);
    return found;
}

/* Sets `engine` to the name of the engine that would run it; "" if there is none. Returns what is wrong with it, or
 * NULL. */
static const char *plan_of(const lk_gpu_libraries *libraries, const wanted *w, precision in, char *engine)
{
    lk_gpu_conv_shape shape = {.geometry = w->geometry, .dtype = in == BF16 ? LK_BF16 : LK_F32, .tf32 = in != F32};
    lk_gpu_conv_problem p = {w->direction, w->bias, w->direction == LK_GPU_TO_WEIGHTS ? LK_F32 : shape.dtype, &shape};
    lk_gpu_conv_plan *plan;
    const char *wrong = NULL;
    if (lk__gpu_conv_plan_new(libraries, &p, NULL, &plan) != LK_GPU_OK)
        give_up("a plan");
    if (!plan->plan && p.bias) { /* the plug-in then adds it by a kernel of its own */
        p.bias = false;
        lk__gpu_conv_plan_free(plan);
        if (lk__gpu_conv_plan_new(libraries, &p, NULL, &plan) != LK_GPU_OK)
            give_up("a plan");
    }
    if (plan->notes & 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
        wrong = "adds in no fixed order";
    else if (plan->workspace > LK_GPU_WORKSPACE_BYTES)
        wrong = "needs too much workspace";
    else if (plan->plan && plan->fallback && strcmp(w->from, "others") != 0)
        wrong = "is on cuDNN's list of fallbacks, which has no order";
    if (plan->plan)
        snprintf(engine, sizeof(lk_gpu_name), "%s", plan->problem.choice.name);
    printf("  %-7s %-9s %4lld x %3lld -> %3lld channels, %lldx%lld, %lldx%lld kernel: ", direction_names[w->direction],
           w->from, (long long)w->geometry.images, (long long)w->geometry.channels, (long long)w->geometry.filters,
           (long long)w->geometry.in[0], (long long)w->geometry.in[1], (long long)w->geometry.kernel[0],
           (long long)w->geometry.kernel[1]);
    if (plan->plan)
        printf("%s, %s %d, workspace %.1f MB%s\n", engine, plan->fallback ? "fallback" : "proposal", plan->position,
               (double)plan->workspace / 1e6,
               w->direction == LK_GPU_TO_WEIGHTS || takes_parts(libraries, p, plan) ? ""
                                                                                    : ", merged shards one by one");
    else
        printf("none\n");
    fflush(stdout);
    lk__gpu_conv_plan_free(plan);
    return wrong;
}

/* Keeps plans in a new folder, whose name `cache` gets, or no longer and removes it. */
static void begin_keeping(char *cache, size_t size)
{
    snprintf(cache, size, "/tmp/cudnn_plans.XXXXXX");
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1) != 0)
        give_up(cache);
    lk__gpu_keep_plans(&lk__cuda_plan_files);
}

static int end_keeping(const char *cache)
{
    char command[64];
    lk__gpu_keep_plans(NULL);
    snprintf(command, sizeof command, "rm -r %s", cache);
    return system(command) != 0;
}

/* Loads the kept plans of a network in bf16, as a training does that is started again. Returns how many were made. */
static int load_plans(const lk_gpu_libraries *libraries, const char *network)
{
    int n = 0, made = 0;
    clock_t before = clock();
    for (int i = 0; i < all.n; i++) {
        const wanted *w = &all.list[i];
        lk_gpu_conv_shape shape = {.geometry = w->geometry, .dtype = LK_BF16, .tf32 = true};
        lk_gpu_conv_problem p = {w->direction, w->bias, w->direction == LK_GPU_TO_WEIGHTS ? LK_F32 : LK_BF16, &shape};
        lk_gpu_conv_plan *plan;
        if (strcmp(w->from, network) != 0 || (p.direction == LK_GPU_TO_WEIGHTS && lk_gpu_has_few_inputs(&shape)))
            continue;
        if (lk__gpu_conv_plan_new(libraries, &p, NULL, &plan) != LK_GPU_OK)
            give_up("a plan");
        n++;
        made += !plan->was_kept;
        lk__gpu_conv_plan_free(plan);
    }
    printf("start-up: %s, bf16: %d plans, %d of them made anew, in %.2f s of processor time\n", network, n, made,
           (double)(clock() - before) / CLOCKS_PER_SEC);
    return made;
}

/* A convolution without an engine in bf16 runs in TF32, to which bf16 is exact. Sets engines[i]; returns the number of
 * faults. */
static int check_gpu(const char *folder, const char *gpu, precision in, lk_gpu_name *engines)
{
    lk_gpu_libraries libraries = {.described_gpu = describe_gpu(folder, gpu)};
    bool keeps = in == BF16 && strcmp(gpu, "h100") == 0;
    char cache[32];
    int faults = 0, without = 0;
    printf("%s, %s\n", gpu, precision_names[in]);
    if (keeps)
        begin_keeping(cache, sizeof cache);
    for (int i = 0; i < all.n; i++) {
        engines[i][0] = '\0';
        const char *wrong = plan_of(&libraries, &all.list[i], in, engines[i]);
        if (!engines[i][0] && in == BF16) {
            without++;
            wrong = plan_of(&libraries, &all.list[i], TF32, engines[i]);
        }
        if (!engines[i][0])
            wrong = "would run on the direct kernel";
        if (wrong)
            fprintf(stderr, "cudnn_plans: %s, %s: the convolution above %s\n", gpu, precision_names[in], wrong);
        faults += wrong != NULL;
    }
    printf("%s, %s: %d convolutions, %d faults", gpu, precision_names[in], all.n, faults);
    printf(", %d without an engine in bf16\n", without);
    if (keeps)
        faults += load_plans(&libraries, "wrn-16-10") + end_keeping(cache);
    cudnnBackendDestroyDescriptor(libraries.described_gpu);
    return faults;
}

static lk_gpu_name engines[2][MAX_CONVOLUTIONS];

/* GPUs of one architecture must have the same engines: bits must not depend on memory or clocks. */
static int check_precision(const char *folder, const char *only, precision in)
{
    static const char *const gpus[] = {"a100", "h100", "h200"};
    int faults = 0, different = 0;
    for (int g = 0; g < 3; g++)
        if (!only || strcmp(only, gpus[g]) == 0)
            faults += check_gpu(folder, gpus[g], in, engines[g == 2]);
    for (int i = 0; !only && i < all.n; i++)
        different += strcmp(engines[0][i], engines[1][i]) != 0;
    if (!only)
        printf("%s: h100 and h200 have the same engine for %d of %d\n", precision_names[in], all.n - different, all.n);
    return faults + different;
}

/* --- kept plans --------------------------------------------------------------------------------------------------- */

/* The plan's engine is the first one's, and it was kept or not as expected. */
static int check_kept(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p, const char *when, bool kept,
                      lk_gpu_name first)
{
    lk_gpu_conv_plan *plan;
    if (lk__gpu_conv_plan_new(libraries, p, NULL, &plan) != LK_GPU_OK || !plan->plan)
        give_up("a plan to keep");
    if (!*first)
        memcpy(first, plan->problem.choice.name, sizeof(lk_gpu_name));
    bool right = plan->was_kept == kept && strcmp(first, plan->problem.choice.name) == 0;
    printf("kept plans: %s: %s, %s%s\n", when, plan->problem.choice.name, plan->was_kept ? "kept" : "made",
           right ? "" : ": wrong");
    lk__gpu_conv_plan_free(plan);
    return !right;
}

/* Calls change(path) for the only file of the folder for plans. */
static void change_file(const char *cache, void (*change)(const char *path))
{
    char path[PATH_MAX];
    glob_t found;
    snprintf(path, sizeof path, "%s/lockstep/plans/*", cache);
    if (glob(path, 0, NULL, &found) != 0 || found.gl_pathc != 1)
        give_up("not one kept plan");
    change(found.gl_pathv[0]);
    globfree(&found);
}

static void damage(const char *path)
{
    FILE *file = fopen(path, "r+");
    if (!file || fseek(file, 1000, SEEK_SET) != 0 || fputc('#', file) == EOF || fclose(file) != 0)
        give_up(path);
}

static void let_others_write(const char *path)
{
    if (chmod(path, 0666) != 0)
        give_up(path);
}

static void cut(const char *path)
{
    if (truncate(path, 20) != 0)
        give_up(path);
}

/* A kernel that is compiled at run time: a weight gradient in bf16. */
static int check_kept_plans(const char *folder)
{
    char cache[32];
    lk_gpu_libraries libraries = {.described_gpu = describe_gpu(folder, "h100"), .machine = "a described H100"};
    lk_gpu_conv_shape shape = {
        .geometry = {8, 64, 64, 1, {14, 14}, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, .dtype = LK_BF16, .tf32 = true};
    lk_gpu_conv_problem p = {LK_GPU_TO_WEIGHTS, false, LK_F32, &shape};
    lk_gpu_name first = "", listed[2];
    int faults = 0, n = 0;
    if (lk__gpu_conv_engines(&libraries, &p, listed, 2, &n) != LK_GPU_OK || n < 2)
        give_up("two engines");
    begin_keeping(cache, sizeof cache);
    faults += check_kept(&libraries, &p, "at first", false, first);
    faults += check_kept(&libraries, &p, "again", true, first);
    change_file(cache, damage);
    faults += check_kept(&libraries, &p, "after damage", false, first);
    faults += check_kept(&libraries, &p, "again", true, first);
    change_file(cache, cut);
    faults += check_kept(&libraries, &p, "cut off", false, first);
    change_file(cache, let_others_write);
    faults += check_kept(&libraries, &p, "others may write it", false, first);
    strcpy(libraries.machine, "another GPU");
    faults += check_kept(&libraries, &p, "another GPU", false, first);
    shape.engine = listed[1];
    faults += check_kept(&libraries, &p, "a pinned engine", false, listed[1]);
    faults += check_kept(&libraries, &p, "again", true, listed[1]);
    cudnnBackendDestroyDescriptor(libraries.described_gpu);
    return faults + end_keeping(cache);
}

/* --- pinned engines ----------------------------------------------------------------------------------------------- */

/* NULL: there is no such plan. */
static lk_gpu_conv_plan *pin(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p, const char *engine)
{
    lk_gpu_conv_shape shape = *p->shape;
    lk_gpu_conv_problem pinned = *p;
    lk_gpu_conv_plan *plan;
    pinned.shape = &shape;
    shape.engine = engine;
    lk_gpu_status status = lk__gpu_conv_plan_new(libraries, &pinned, NULL, &plan);
    if (status != LK_GPU_OK && status != LK_GPU_NO_ENGINE)
        give_up("a pinned engine");
    return plan;
}

static int check_refused(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p, const char *engine)
{
    lk_gpu_conv_plan *plan = pin(libraries, p, engine);
    if (!plan)
        return 0;
    lk__gpu_conv_plan_free(plan);
    fprintf(stderr, "cudnn_plans: '%s' is no engine for this convolution, but is taken\n", engine);
    return 1;
}

/* The first is that of the heuristics, and gives the same plan. *other: an engine's name, to be tried elsewhere. */
static int check_engines(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p, lk_gpu_name other)
{
    lk_gpu_name listed[PINNED], longer;
    lk_gpu_conv_plan *chosen;
    int n = 0, faults = 0;
    if (lk__gpu_conv_engines(libraries, p, listed, PINNED, &n) != LK_GPU_OK || n == 0 ||
        lk__gpu_conv_plan_new(libraries, p, NULL, &chosen) != LK_GPU_OK || !chosen->plan)
        give_up("the engines of a convolution");
    for (int i = 0; i < n; i++) {
        lk_gpu_conv_plan *plan = pin(libraries, p, listed[i]);
        bool right = plan && plan->plan && strcmp(plan->problem.choice.name, listed[i]) == 0 &&
                     strcmp(plan->problem.choice.conv.engine, listed[i]) == 0 &&
                     !(plan->notes & 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
                     plan->workspace <= LK_GPU_WORKSPACE_BYTES;
        if (right && i == 0)
            right = strcmp(chosen->problem.choice.name, listed[0]) == 0 && plan->workspace == chosen->workspace &&
                    plan->notes == chosen->notes;
        printf("pinned: %s %s: %s%s\n", direction_names[p->direction], lk_dtype_name(p->shape->dtype), listed[i],
               right ? "" : ": wrong");
        faults += !right;
        if (plan)
            lk__gpu_conv_plan_free(plan);
    }
    lk__gpu_conv_plan_free(chosen);
    snprintf(longer, sizeof longer, "%.100sx", listed[0]);
    faults += check_refused(libraries, p, longer);
    snprintf(longer, sizeof longer, "%.100s_k", listed[0]);
    faults += check_refused(libraries, p, longer);
    memcpy(other, listed[0], sizeof longer);
    return faults;
}

static int check_pinned_engines(const char *folder)
{
    static const char *const none[] = {"", "own", "cudnn:", "cudnn:eng", "cudnn:eng99999", "cudnn:eng-1", "emulated"};
    lk_gpu_libraries libraries = {.described_gpu = describe_gpu(folder, "h100"), .machine = "a described H100"};
    lk_gpu_conv_shape shape = {.geometry = {8, 64, 64, 1, {14, 14}, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};
    lk_gpu_name other;
    int faults = 0;
    for (int in = TF32; in < PRECISIONS; in++) {
        shape.dtype = in == BF16 ? LK_BF16 : LK_F32;
        shape.tf32 = true;
        for (int direction = LK_GPU_FORWARD; direction <= LK_GPU_TO_WEIGHTS; direction++) {
            lk_gpu_conv_problem p = {(lk_gpu_conv_direction)direction, direction == LK_GPU_FORWARD,
                                     direction == LK_GPU_TO_WEIGHTS ? LK_F32 : shape.dtype, &shape};
            faults += check_engines(&libraries, &p, other);
            for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
                faults += check_refused(&libraries, &p, none[i]);
            if (in == BF16)
                faults += check_refused(&libraries, &p, "direct");
            shape.tf32 = false; /* the engine runs on tensor cores, which would round f32 */
            if (in == TF32)
                faults += check_refused(&libraries, &p, other);
            shape.tf32 = true;
        }
    }
    cudnnBackendDestroyDescriptor(libraries.described_gpu);
    printf("pinned: %d faults\n", faults);
    return faults;
}

int main(int argc, char **argv)
{
    int faults = 0;
    if (cudnnGetVersion() < OLDEST_CUDNN || !dlopen("libcuda.so.1", RTLD_NOW)) {
        printf("cuDNN %zu does not describe GPUs, or there is no stand-in for the driver\n", cudnnGetVersion());
        return SKIPPED;
    }
    lk_device *device = lk_device_open("cpu:0");
    if (argc < 2 || !device)
        give_up("usage: cudnn_plans FOLDER [GPU [DTYPE]]");
    want_network(device, "lenet", 32);
    want_network(device, "keras-cnn", 32);
    want_network(device, "resnet18", 64);
    want_network(device, "wrn-16-10", 64);
    want_others();
    lk_device_release(device);
    faults += check_kept_plans(argv[1]);
    faults += check_pinned_engines(argv[1]);
    for (int in = F32; in < PRECISIONS; in++)
        if (argc < 4 || strcmp(argv[3], precision_names[in]) == 0)
            faults += check_precision(argv[1], argc > 2 ? argv[2] : NULL, in);
    printf("cudnn_plans: cuDNN %zu, %d faults\n", cudnnGetVersion(), faults);
    return faults != 0;
}
