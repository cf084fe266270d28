/* Batches of images go to the devices in turn. Each device has one more batch in flight while its oldest is read. */
#include "predict/predictor.h"

#include "base/float_env.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "data/dataset.h"
#include "lockstep/image.h"
#include "lockstep/pjrt.h"
#include "ops/augmentation.h"
#include "train/checkpoint/checkpoint_read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { GOOD_BATCH = 64, AHEAD = 2 };

static const double deviation_floor = 1e-6; /* see lk_augment_opts */

typedef struct batch {
    int64_t first, count;
    lk_tensor *logits; /* NULL: no batch in flight */
} batch;

struct lk_predictor {
    lk_model *model;
    lk_model_input input;
    lk_dtype dtype;
    lk_augmentation prepare;
    char **class_names; /* [classes] or NULL */
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices, n_variables;
    lk_tensor **variables; /* [device][variable] */
    int64_t batch_size;
    int64_t room;   /* images of a batch that memory was allocated for */
    float *images;  /* [room, C, H, W] */
    float *logits;  /* [room, classes] */
    float *pixels;  /* [C, H, W]: an image from a data set's function */
    float *scratch; /* for the preparation of an image */
};

/* --- construction ------------------------------------------------------------------------------------------------- */

static lk_status predictor_copy_class_names(const lk_checkpoint_info *info, lk_predictor *p)
{
    if (!info->class_names)
        return LK_OK;
    p->class_names = lk__calloc((size_t)info->classes + 1, sizeof *p->class_names);
    if (!p->class_names)
        return LK_ERR_MEMORY;
    for (int64_t c = 0; c < info->classes; c++)
        if (!(p->class_names[c] = lk__strdup(info->class_names[c])))
            return LK_ERR_MEMORY;
    return LK_OK;
}

static lk_status predictor_set_preparation(const lk_checkpoint_info *info, lk_predictor *p)
{
    lk_augmentation *a = &p->prepare;
    *a = (lk_augmentation){.opts = {.center = info->center, .standardize = info->standardize},
                           .channels = p->input.channels,
                           .size = {p->input.height, p->input.width}};
    p->scratch = lk__calloc((size_t)lk__augmentation_scratch(a), sizeof *p->scratch);
    if (!p->scratch)
        return LK_ERR_MEMORY;
    if (!info->center && !info->standardize)
        return LK_OK;
    a->mean = lk__calloc((size_t)a->channels, 2 * sizeof *a->mean);
    if (!a->mean)
        return LK_ERR_MEMORY;
    a->divisor = a->mean + a->channels;
    for (int64_t c = 0; c < a->channels; c++) {
        a->mean[c] = info->center ? (float)info->mean[c] : 0;
        a->divisor[c] = info->standardize ? (float)(info->deviation[c] + deviation_floor) : 1;
    }
    return LK_OK;
}

static lk_status predictor_allocate(lk_predictor *p)
{
    size_t pixels = (size_t)(p->input.channels * p->input.height * p->input.width);
    p->pixels = lk__calloc(pixels, sizeof *p->pixels);
    p->variables = lk__calloc((size_t)p->n_devices * (size_t)p->n_variables + 1, sizeof(lk_tensor *));
    return p->pixels && p->variables ? LK_OK : LK_ERR_MEMORY;
}

/* Allocates memory for batches of `count` images unless it is there. */
static lk_status predictor_reserve(lk_predictor *p, int64_t count)
{
    if (count <= p->room)
        return LK_OK;
    LK_FREE_ALL(p->images, p->logits);
    p->room = 0;
    p->images =
        lk__calloc((size_t)count, (size_t)(p->input.channels * p->input.height * p->input.width) * sizeof(float));
    p->logits = lk__calloc((size_t)count, (size_t)p->input.classes * sizeof *p->logits);
    if (!p->images || !p->logits)
        return LK_ERR_MEMORY;
    p->room = count;
    return LK_OK;
}

static lk_status predictor_build(const lk_checkpoint *checkpoint, const lk_predictor_opts *opts, lk_predictor *p)
{
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    if (!p->model)
        return lk_error_status() != LK_OK ? lk_error_status()
                                          : lk__fail(LK_ERR_ARGUMENT, "prediction: the model is NULL");
    LK_TRY(lk__checkpoint_check_model(checkpoint, p->model));
    p->input = lk_model_get_input(p->model);
    p->n_variables = lk_model_variable_count(p->model);
    p->dtype = info->dtype;
    p->batch_size = opts->batch_size ? opts->batch_size : GOOD_BATCH;
    if (p->input.classes < 1)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: the network gives no logits of classes", info->folder);
    if (p->input.channels != info->channels || p->input.classes != info->classes)
        LK_FAIL(LK_ERR_FORMAT,
                "%s: is of %" PRId64 " channels and %" PRId64 " classes, and model %s has %" PRId64 " and %" PRId64,
                info->folder, info->channels, info->classes, lk_model_name(p->model), p->input.channels,
                p->input.classes);
    if (p->batch_size < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "prediction: a batch size of %" PRId64 "; at least 1", p->batch_size);
    LK_TRY(predictor_copy_class_names(info, p));
    LK_TRY(predictor_set_preparation(info, p));
    if (opts->pjrt)
        LK_TRY(lk_pjrt_use(opts->pjrt));
    LK_TRY(lk_devices_open(opts->devices ? opts->devices : "cpu", p->devices, LK_MAX_DEVICES, &p->n_devices));
    if (opts->pjrt && !p->devices[0]->backend->modules)
        LK_FAIL(LK_ERR_ARGUMENT, "--pjrt: %s has no use for a plug-in; devices pjrt:0 and tpu:0 have",
                lk_device_name(p->devices[0]));
    LK_TRY(predictor_allocate(p));
    for (int d = 0; d < p->n_devices; d++)
        LK_TRY(lk__checkpoint_lend(checkpoint, p->devices[d], p->variables + d * p->n_variables));
    return LK_OK;
}

lk_predictor *lk_predictor_new_with(const lk_checkpoint *checkpoint, lk_model *model, const lk_predictor_opts *opts)
{
    static const lk_predictor_opts defaults;
    lk_predictor *p = lk__calloc(1, sizeof *p);
    if (!p) {
        lk_model_release(model);
        return NULL;
    }
    p->model = model;
    if (predictor_build(checkpoint, opts ? opts : &defaults, p) == LK_OK)
        return p;
    lk_predictor_release(p);
    return NULL;
}

lk_predictor *lk_predictor_new(const lk_checkpoint *checkpoint, const lk_predictor_opts *opts)
{
    return lk_predictor_new_with(checkpoint, lk_checkpoint_model(checkpoint), opts);
}

void lk_predictor_release(lk_predictor *p)
{
    if (!p)
        return;
    for (int i = 0; p->variables && i < p->n_devices * p->n_variables; i++)
        lk_tensor_release(p->variables[i]);
    lk_devices_release(p->devices, p->n_devices);
    for (int64_t c = 0; p->class_names && c < p->input.classes; c++)
        lk__free(p->class_names[c]);
    LK_FREE_ALL(p->class_names, p->variables, p->prepare.mean, p->images, p->pixels, p->logits, p->scratch);
    lk_model_release(p->model);
    lk__free(p);
}

lk_model_input lk_predictor_input(const lk_predictor *predictor)
{
    return predictor->input;
}

const char *lk_predictor_class_name(const lk_predictor *p, int64_t index)
{
    return p->class_names && index >= 0 && index < p->input.classes ? p->class_names[index] : NULL;
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static lk_status predictor_push(lk_predictor *p, int device, const lk_predict_images *images, batch *b)
{
    int64_t values = p->input.channels * p->input.height * p->input.width;
    for (int64_t i = 0; i < b->count; i++) {
        lk_pixels pixels = {.bytes = images->bytes ? images->bytes + (b->first + i) * values : NULL};
        if (!images->bytes)
            LK_TRY(lk__dataset_pixels(images->dataset, b->first + i, p->pixels, &pixels));
        lk__augmentation_apply(&p->prepare, pixels, 0, 0, p->scratch, p->images + i * values);
    }
    lk_shape shape = LK_SHAPE(b->count, p->input.channels, p->input.height, p->input.width);
    lk_scope_begin();
    lk_tensor *x = lk_tensor_from(p->devices[device], LK_F32, shape, p->images);
    b->logits =
        lk_model_forward(p->model, p->variables + device * p->n_variables, x, &(lk_forward_opts){.dtype = p->dtype});
    if (b->logits)
        lk_tensor_retain(b->logits);
    lk_scope_end();
    return b->logits ? LK_OK : lk_error_status();
}

/* Reads the logits of a batch, if there is one, hands them to `take` and releases them. */
static lk_status predictor_take(lk_predictor *p, batch *b, lk__take_logits take, void *user)
{
    if (!b->logits)
        return LK_OK;
    int64_t classes = p->input.classes;
    lk_status status = lk_tensor_read(b->logits, p->logits, (size_t)(b->count * classes) * sizeof *p->logits);
    lk_tensor_release(b->logits);
    b->logits = NULL;
    LK_TRY(status);
    for (int64_t i = 0; i < b->count * classes; i++)
        if (!isfinite(p->logits[i]))
            LK_FAIL(LK_ERR_STATE, "%s: the logits of image %" PRId64 " are not finite: training has gone wrong",
                    lk_model_name(p->model), b->first + i / classes);
    return take(user, b->first, b->count, p->logits);
}

lk_status lk__predict_logits(lk_predictor *p, const lk_predict_images *images, lk__take_logits take, void *user)
{
    int64_t count = images->count;
    batch in_flight[AHEAD * LK_MAX_DEVICES] = {{0}};
    int slots = AHEAD * p->n_devices, turn = 0;
    lk_status status = LK_OK;
    if (count < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "prediction: %" PRId64 " images; at least 1", count);
    LK_TRY(predictor_reserve(p, lk__min(count, p->batch_size)));
    fenv_t callers = lk__float_begin();
    for (int64_t first = 0; status == LK_OK && first < count; first += p->batch_size, turn = (turn + 1) % slots) {
        batch *b = &in_flight[turn];
        status = predictor_take(p, b, take, user);
        if (status != LK_OK)
            break;
        b->first = first;
        b->count = lk__min(count - first, p->batch_size);
        status = predictor_push(p, turn % p->n_devices, images, b);
    }
    for (int i = 0; i < slots; i++, turn = (turn + 1) % slots) {
        if (status == LK_OK)
            status = predictor_take(p, &in_flight[turn], take, user);
        lk_tensor_release(in_flight[turn].logits);
        in_flight[turn].logits = NULL;
    }
    lk__float_end(&callers);
    return status;
}

/* --- probabilities ------------------------------------------------------------------------------------------------ */

double lk__softmax(const float *logits, int64_t n, double *probabilities)
{
    double greatest = logits[0], sum = 0;
    fenv_t callers = lk__float_begin();
    for (int64_t i = 1; i < n; i++)
        greatest = fmax(greatest, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += probabilities[i] = exp((double)logits[i] - greatest);
    for (int64_t i = 0; i < n; i++)
        probabilities[i] /= sum;
    double log_of_sum = greatest + log(fmax(sum, 1)); /* the greatest logit alone contributes 1 */
    lk__float_end(&callers);
    return log_of_sum;
}

typedef struct target {
    int64_t classes;
    double *row; /* [classes] */
    float *probabilities;
} target;

static lk_status predictor_put_probabilities(void *user, int64_t first, int64_t count, const float *logits)
{
    const target *t = user;
    for (int64_t i = 0; i < count; i++) {
        float *out = t->probabilities + (first + i) * t->classes;
        lk__softmax(logits + i * t->classes, t->classes, t->row);
        for (int64_t c = 0; c < t->classes; c++)
            out[c] = (float)t->row[c];
    }
    return LK_OK;
}

lk_status lk_predict(lk_predictor *p, const uint8_t *images, int64_t count, float *probabilities)
{
    target t = {p->input.classes, lk__calloc((size_t)p->input.classes, sizeof *t.row), probabilities};
    if (!t.row)
        return LK_ERR_MEMORY;
    const lk_predict_images all = {.bytes = images, .count = count};
    lk_status status = lk__predict_logits(p, &all, predictor_put_probabilities, &t);
    lk__free(t.row);
    return status;
}

static lk_status predictor_image_opts(const lk_predictor *p, const char *name, lk_image_opts *opts)
{
    *opts = (lk_image_opts){.channels = p->input.channels, .height = p->input.height, .width = p->input.width};
    if (opts->channels != 1 && opts->channels != 3)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: the network takes images of %" PRId64 " channels; a picture has 1 or 3", name,
                opts->channels);
    return LK_OK;
}

static lk_status predictor_run_image(lk_predictor *p, lk_image *image, float *probabilities)
{
    lk_status status = lk_predict(p, image->pixels, 1, probabilities);
    lk_image_free(image);
    return status;
}

lk_status lk_predict_file(lk_predictor *p, const char *path, float *probabilities)
{
    lk_image image;
    lk_image_opts opts;
    LK_TRY(predictor_image_opts(p, path, &opts));
    LK_TRY(lk_image_read(path, &opts, &image));
    return predictor_run_image(p, &image, probabilities);
}

lk_status lk_predict_bytes(lk_predictor *p, const void *bytes, size_t size, const char *name, float *probabilities)
{
    lk_image image;
    lk_image_opts opts;
    LK_TRY(predictor_image_opts(p, name, &opts));
    LK_TRY(lk_image_decode(bytes, size, name, &opts, &image));
    return predictor_run_image(p, &image, probabilities);
}

void lk_top_classes(const float *probabilities, int64_t classes, int64_t k, int64_t *top)
{
    int64_t n = 0;
    for (int64_t c = 0; c < classes; c++) {
        int64_t rank = n;
        while (rank > 0 && probabilities[top[rank - 1]] < probabilities[c])
            rank--;
        if (rank == k)
            continue;
        n += n < k;
        memmove(top + rank + 1, top + rank, (size_t)(n - 1 - rank) * sizeof *top);
        top[rank] = c;
    }
}
