/* Evaluates a network on a data set, class by class, and keeps its worst mistakes. */
#include "base/float_env.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/bytes.h"
#include "lockstep/plot.h"
#include "predict/predictor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct counting {
    lk_evaluation *evaluation;
    const int32_t *labels; /* of the data set */
    int64_t *class_of;     /* [classes of the data set]: the network's class; -1: it has no such class */
    int64_t *right;        /* [classes]: number of samples whose label is predicted */
    int64_t *predicted;    /* [classes]: number of samples that are predicted as the class */
    int64_t most;          /* mistakes to keep */
    double *losses;        /* [most]: the losses of the kept mistakes, the greatest first */
    double *row;           /* [classes]: probabilities of a sample */
} counting;

/* --- counting ----------------------------------------------------------------------------------------------------- */

static void evaluation_keep_mistake(counting *c, const lk_mistake *mistake, double loss)
{
    lk_evaluation *e = c->evaluation;
    int64_t rank = e->n_mistakes;
    while (rank > 0 && c->losses[rank - 1] < loss)
        rank--;
    if (rank == c->most)
        return;
    if (e->n_mistakes < c->most)
        e->n_mistakes++;
    size_t moved = (size_t)(e->n_mistakes - 1 - rank);
    memmove(e->mistakes + rank + 1, e->mistakes + rank, moved * sizeof *e->mistakes);
    memmove(c->losses + rank + 1, c->losses + rank, moved * sizeof *c->losses);
    e->mistakes[rank] = *mistake;
    c->losses[rank] = loss;
}

static lk_status evaluation_count_batch(void *user, int64_t first, int64_t count, const float *logits)
{
    counting *c = user;
    lk_evaluation *e = c->evaluation;
    for (int64_t i = 0; i < count; i++) {
        const float *row = logits + i * e->classes;
        int64_t label = c->class_of[c->labels[first + i]], likeliest = 0;
        double loss = lk__softmax(row, e->classes, c->row) - (double)row[label];
        for (int64_t k = 1; k < e->classes; k++)
            if (row[k] > row[likeliest])
                likeliest = k;
        if (e->confusion)
            e->confusion[label * e->classes + likeliest]++;
        e->labeled[label]++;
        c->predicted[likeliest]++;
        c->right[label] += likeliest == label;
        e->loss.sum += loss;
        e->loss.count++;
        e->accuracy.sum += likeliest == label;
        e->accuracy.count++;
        if (likeliest == label)
            continue;
        e->wrong++;
        evaluation_keep_mistake(c,
                                &(lk_mistake){.sample = first + i,
                                              .label = label,
                                              .predicted = likeliest,
                                              .label_probability = (float)c->row[label],
                                              .predicted_probability = (float)c->row[likeliest]},
                                loss);
    }
    return LK_OK;
}

static double evaluation_ratio(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

static void evaluation_rate_classes(const counting *c)
{
    lk_evaluation *e = c->evaluation;
    for (int64_t k = 0; k < e->classes; k++) {
        e->precision[k] = evaluation_ratio(c->right[k], c->predicted[k]);
        e->recall[k] = evaluation_ratio(c->right[k], e->labeled[k]);
        e->f1[k] = evaluation_ratio(2 * c->right[k], e->labeled[k] + c->predicted[k]);
    }
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

static lk_status evaluation_check_image_sizes(const lk_predictor *predictor, const lk_dataset *dataset)
{
    lk_model_input input = lk_predictor_input(predictor);
    int64_t c = lk_dataset_channels(dataset), h = lk_dataset_height(dataset), w = lk_dataset_width(dataset);
    if (c != input.channels || h != input.height || w != input.width)
        LK_FAIL(LK_ERR_SHAPE,
                "%s: its images are %" PRId64 "x%" PRId64 "x%" PRId64 ", the network takes %" PRId64 "x%" PRId64
                "x%" PRId64,
                lk_dataset_name(dataset), c, h, w, input.channels, input.height, input.width);
    return LK_OK;
}

/* Finds the network's class for a class of the data: by name if both have names, else by number. A checkpoint holds
 * names in clean UTF-8, in which two names may have become equal; then the number decides if its name fits. */
static lk_status evaluation_find_class(const lk_predictor *predictor, const lk_dataset *dataset, int64_t label,
                                       int64_t *class_of)
{
    int64_t classes = lk_predictor_input(predictor).classes;
    const char *given = lk_dataset_class_name(dataset, label), *own = lk_predictor_class_name(predictor, label);
    lk_bytes name = {0};
    *class_of = label < classes ? label : -1;
    if (!given || !lk_predictor_class_name(predictor, 0))
        return LK_OK;
    lk__bytes_clean(&name, given);
    lk__bytes_char(&name, '\0');
    lk_status status = lk__bytes_status(&name);
    bool found = status == LK_OK && own && strcmp(own, (const char *)name.data) == 0;
    for (int64_t c = 0; c < classes && status == LK_OK && !found; c++) {
        found = strcmp(lk_predictor_class_name(predictor, c), (const char *)name.data) == 0;
        *class_of = found ? c : -1;
    }
    lk__bytes_free(&name);
    return status;
}

static lk_status evaluation_match_classes(const lk_predictor *predictor, const lk_dataset *dataset, counting *c)
{
    int64_t n = lk_dataset_classes(dataset), classes = lk_predictor_input(predictor).classes;
    c->labels = lk_dataset_labels(dataset);
    c->class_of = lk__calloc((size_t)n, sizeof *c->class_of);
    if (!c->class_of)
        return LK_ERR_MEMORY;
    for (int64_t label = 0; label < n; label++)
        LK_TRY(evaluation_find_class(predictor, dataset, label, &c->class_of[label]));
    for (int64_t i = 0; i < lk_dataset_count(dataset); i++) {
        if (c->class_of[c->labels[i]] >= 0)
            continue;
        const char *name = lk_dataset_class_name(dataset, c->labels[i]), *own = lk_predictor_class_name(predictor, 0);
        if (name && own)
            LK_FAIL(LK_ERR_SHAPE, "%s: its class '%s' is none of the network's %" PRId64 ", '%s' to '%s'",
                    lk_dataset_name(dataset), name, classes, own, lk_predictor_class_name(predictor, classes - 1));
        LK_FAIL(LK_ERR_SHAPE, "%s: sample %" PRId64 " has label %d, the network knows %" PRId64 " classes",
                lk_dataset_name(dataset), i, c->labels[i], classes);
    }
    return LK_OK;
}

static lk_status evaluation_allocate(counting *c)
{
    lk_evaluation *e = c->evaluation;
    size_t classes = (size_t)e->classes, most = (size_t)c->most;
    bool has_matrix = e->classes <= LK_CONFUSION_MOST;
    e->confusion = has_matrix ? lk__calloc(classes * classes, sizeof *e->confusion) : NULL;
    e->labeled = lk__calloc(classes, sizeof *e->labeled);
    e->precision = lk__calloc(classes, 3 * sizeof *e->precision);
    e->mistakes = lk__calloc(most + 1, sizeof *e->mistakes);
    c->losses = lk__calloc(most + 1, sizeof *c->losses);
    c->row = lk__calloc(classes, sizeof *c->row);
    c->right = lk__calloc(classes, 2 * sizeof *c->right);
    if ((has_matrix && !e->confusion) || !e->labeled || !e->precision || !e->mistakes || !c->losses || !c->row ||
        !c->right)
        return LK_ERR_MEMORY;
    c->predicted = c->right + classes;
    e->recall = e->precision + classes;
    e->f1 = e->recall + classes;
    return LK_OK;
}

lk_status lk_evaluate(lk_predictor *predictor, const lk_dataset *dataset, int64_t mistakes, lk_evaluation *evaluation)
{
    int64_t count = lk_dataset_count(dataset);
    *evaluation = (lk_evaluation){.count = count, .classes = lk_predictor_input(predictor).classes};
    LK_TRY(evaluation_check_image_sizes(predictor, dataset));
    counting c = {.evaluation = evaluation, .most = lk__max(0, lk__min(mistakes, count))};
    lk_status status = evaluation_match_classes(predictor, dataset, &c);
    if (status == LK_OK)
        status = evaluation_allocate(&c);
    const lk_predict_images images = {lk_dataset_images(dataset), dataset, count};
    if (status == LK_OK)
        status = lk__predict_logits(predictor, &images, evaluation_count_batch, &c);
    fenv_t callers = lk__float_begin();
    if (status == LK_OK)
        evaluation_rate_classes(&c);
    else
        lk_evaluation_free(evaluation);
    lk__float_end(&callers);
    LK_FREE_ALL(c.class_of, c.losses, c.row, c.right);
    return status;
}

void lk_evaluation_free(lk_evaluation *evaluation)
{
    LK_FREE_ALL(evaluation->confusion, evaluation->labeled, evaluation->precision, evaluation->mistakes);
    *evaluation = (lk_evaluation){0};
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

/* Draws a network with more classes than a chart has squares: neighboring classes share a square. */
static lk_status evaluation_draw_joined(const lk_evaluation *e, int64_t side, const char *title, const char *path)
{
    int64_t size = (e->classes + side - 1) / side, *counts = lk__calloc((size_t)(size * size), sizeof *counts);
    if (!counts)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < e->classes; i++)
        for (int64_t k = 0; k < e->classes; k++)
            counts[i / side * size + k / side] += e->confusion[i * e->classes + k];
    char text[256];
    snprintf(text, sizeof text, "%.180s (a square is %" PRId64 " x %" PRId64 " classes)", title ? title : "", side,
             side);
    lk_matrix_chart chart = {
        .title = text, .row_label = "label", .column_label = "predicted", .counts = counts, .size = size};
    lk_status status = lk_matrix_chart_write(&chart, path);
    lk__free(counts);
    return status;
}

lk_status lk_evaluation_draw(const lk_evaluation *e, const char *const *names, const char *title, const char *path)
{
    if (!e->confusion)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: there is no confusion matrix of more than %d classes", path, LK_CONFUSION_MOST);
    if (e->classes > LK_MATRIX_CHART_MOST)
        return evaluation_draw_joined(e, (e->classes + LK_MATRIX_CHART_MOST - 1) / LK_MATRIX_CHART_MOST, title, path);
    lk_matrix_chart chart = {.title = title,
                             .row_label = "label",
                             .column_label = "predicted",
                             .names = names,
                             .counts = e->confusion,
                             .size = e->classes};
    return lk_matrix_chart_write(&chart, path);
}

enum { CLASS_NAME = 121, CAPTION = 2 * CLASS_NAME + 20 }; /* bytes of a name in a caption, and of the caption */
enum { WIDTH = 150, BETWEEN = 48, MOST = 8192 }; /* pixels; most captions fit WIDTH; MOST: the sheet's largest side */

/* Returns the factor that makes an image wide enough for most captions. */
static int64_t evaluation_scale(const lk_dataset *dataset)
{
    int64_t side = lk__max(lk_dataset_height(dataset), lk_dataset_width(dataset));
    return (WIDTH + side - 1) / side;
}

/* Returns how many mistakes fit on a sheet, which has about as many rows as columns. */
static int64_t evaluation_fitting_mistakes(const lk_evaluation *e, const lk_dataset *dataset)
{
    int64_t side = evaluation_scale(dataset) * lk__max(lk_dataset_height(dataset), lk_dataset_width(dataset));
    int64_t in_row = (MOST - 2 * BETWEEN) / (side + BETWEEN);
    return lk__min(e->n_mistakes, lk__max(1, in_row * in_row));
}

/* Returns the bytes of `name` that fit into a caption, without cutting a character. */
static int evaluation_fitting_bytes(const char *name)
{
    const char *next = name, *end = name;
    while (lk__utf8_next(&next) && next - name <= CLASS_NAME)
        end = next;
    return (int)(end - name);
}

/* Writes two lines: the label, and the prediction with its probability. */
static void evaluation_put_caption(const lk_mistake *m, const char *const *names, char *caption)
{
    char numbers[2][24];
    const int64_t classes[2] = {m->label, m->predicted};
    const char *shown[2];
    for (int i = 0; i < 2; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%" PRId64, classes[i]);
        shown[i] = names && names[classes[i]] ? names[classes[i]] : numbers[i];
    }
    snprintf(caption, CAPTION, "%.*s", evaluation_fitting_bytes(shown[0]), shown[0]);
    size_t first = strlen(caption);
    snprintf(caption + first, CAPTION - first, " → %.*s %.0f%%", evaluation_fitting_bytes(shown[1]), shown[1],
             100 * (double)m->predicted_probability);
    for (char *at = caption; *at; at++)
        if (*at == '\n')
            *at = ' ';
    caption[first] = '\n';
}

/* images: room for the images of the mistakes that fit, as bytes if the data set has bytes, else as floats. */
static lk_status evaluation_write_sheet(const lk_evaluation *e, const lk_dataset *dataset, void *images, char *texts,
                                        const char **captions, const char *const *names, const char *path)
{
    int64_t c = lk_dataset_channels(dataset), h = lk_dataset_height(dataset), w = lk_dataset_width(dataset);
    const uint8_t *bytes = lk_dataset_images(dataset);
    int64_t count = evaluation_fitting_mistakes(e, dataset);
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = e->mistakes[i].sample;
        if (bytes)
            memcpy((uint8_t *)images + i * c * h * w, bytes + sample * c * h * w, (size_t)(c * h * w));
        else
            LK_TRY(lk_dataset_read(dataset, sample, (float *)images + i * c * h * w));
        captions[i] = texts + i * CAPTION;
        evaluation_put_caption(&e->mistakes[i], names, texts + i * CAPTION);
    }
    char title[128];
    snprintf(title, sizeof title, "The worst of %" PRId64 " mistakes: label → prediction", e->wrong);
    lk_contact_sheet sheet = {.title = title,
                              .images = images,
                              .dtype = bytes ? LK_U8 : LK_F32,
                              .count = count,
                              .channels = c,
                              .height = h,
                              .width = w,
                              .captions = captions,
                              .scale = evaluation_scale(dataset)};
    return lk_contact_sheet_write(&sheet, path);
}

lk_status lk_evaluation_sheet(const lk_evaluation *e, const lk_dataset *dataset, const char *const *names,
                              const char *path)
{
    if (e->n_mistakes < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: there are no mistakes to show", path);
    size_t pixels = (size_t)(lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset));
    size_t count = (size_t)evaluation_fitting_mistakes(e, dataset);
    void *images = lk__calloc(count, pixels * (lk_dataset_images(dataset) ? 1 : sizeof(float)));
    char *texts = lk__calloc(count, CAPTION);
    const char **captions = lk__calloc(count, sizeof *captions);
    lk_status status = LK_ERR_MEMORY;
    if (images && texts && captions)
        status = evaluation_write_sheet(e, dataset, images, texts, captions, names, path);
    lk__free(images);
    lk__free(texts);
    lk__free(captions);
    return status;
}
