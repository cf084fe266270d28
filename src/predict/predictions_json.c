/* Predictions and evaluations as JSON. */
#include "base/float_env.h"
#include "base/mem.h"
#include "io/append_file.h"
#include "io/json.h"
#include "lockstep/predict.h"

#include <string.h>

char *lk_prediction_json(const lk_predictor *predictor, const char *name, const float *probabilities, int64_t k)
{
    lk_bytes out = {0};
    int64_t classes = lk_predictor_input(predictor).classes;
    int64_t *top = lk__calloc((size_t)classes, sizeof *top);
    if (!top)
        return NULL;
    lk_top_classes(probabilities, classes, k, top);
    lk__json_open(&out, NULL, '{');
    lk__json_field(&out, LK_TEXT("file", name));
    lk__json_open(&out, "predictions", '[');
    for (int64_t i = 0; i < k; i++) {
        lk__json_open(&out, NULL, '{');
        lk__json_field(&out, LK_INT("class", top[i]));
        lk__json_field(&out, LK_TEXT("name", lk_predictor_class_name(predictor, top[i])));
        lk__json_field(&out, LK_REAL("probability", (double)probabilities[top[i]]));
        lk__json_close(&out, '}');
    }
    lk__json_close(&out, ']');
    lk__json_close(&out, '}');
    lk__free(top);
    return lk__json_text(&out);
}

static void predictions_json_put_classes(const lk_evaluation *e, const char *const *names, lk_bytes *out)
{
    lk__json_open(out, "classes", '[');
    for (int64_t c = 0; c < e->classes; c++) {
        lk__json_open(out, NULL, '{');
        lk__json_field(out, LK_INT("class", c));
        lk__json_field(out, LK_TEXT("name", names ? names[c] : NULL));
        lk__json_field(out, LK_INT("count", e->labeled[c]));
        lk__json_field(out, lk__real_or_null("precision", e->precision[c]));
        lk__json_field(out, lk__real_or_null("recall", e->recall[c]));
        lk__json_field(out, lk__real_or_null("f1", e->f1[c]));
        lk__json_close(out, '}');
    }
    lk__json_close(out, ']');
}

static void predictions_json_put_confusion(const lk_evaluation *e, lk_bytes *out)
{
    if (!e->confusion) {
        lk__json_field(out, LK_TEXT("confusion", NULL));
        return;
    }
    lk__json_open(out, "confusion", '[');
    for (int64_t c = 0; c < e->classes; c++) {
        lk__json_open(out, NULL, '[');
        for (int64_t k = 0; k < e->classes; k++)
            lk__json_field(out, LK_INT(NULL, e->confusion[c * e->classes + k]));
        lk__json_close(out, ']');
    }
    lk__json_close(out, ']');
}

char *lk_evaluation_json(const lk_evaluation *e, const lk_dataset *dataset, const char *const *names)
{
    lk_bytes out = {0};
    fenv_t callers = lk__float_begin();
    lk__json_open(&out, NULL, '{');
    lk__json_field(&out, LK_INT("count", e->count));
    lk__json_field(&out, LK_REAL("loss", e->loss.sum / (double)e->loss.count));
    lk__json_field(&out, LK_REAL("accuracy", e->accuracy.sum / (double)e->accuracy.count));
    predictions_json_put_classes(e, names, &out);
    predictions_json_put_confusion(e, &out);
    lk__json_open(&out, "mistakes", '[');
    for (int64_t i = 0; i < e->n_mistakes; i++) {
        const lk_mistake *m = &e->mistakes[i];
        lk__json_open(&out, NULL, '{');
        lk__json_field(&out, LK_INT("sample", m->sample));
        lk__json_field(&out, LK_TEXT("file", dataset ? lk_dataset_sample_name(dataset, m->sample) : NULL));
        lk__json_field(&out, LK_INT("label", m->label));
        lk__json_field(&out, LK_INT("predicted", m->predicted));
        lk__json_field(&out, LK_REAL("label_probability", (double)m->label_probability));
        lk__json_field(&out, LK_REAL("predicted_probability", (double)m->predicted_probability));
        lk__json_close(&out, '}');
    }
    lk__json_close(&out, ']');
    lk__json_close(&out, '}');
    lk__float_end(&callers);
    return lk__json_text(&out);
}

lk_status lk_evaluation_write(const lk_evaluation *e, const lk_dataset *dataset, const char *const *names,
                              const char *path)
{
    char *text = lk_evaluation_json(e, dataset, names);
    if (!text)
        return lk_error_status();
    size_t length = strlen(text);
    text[length] = '\n'; /* instead of the terminator */
    lk_status status = lk__replace_file(path, text, length + 1);
    lk_free(text);
    return status;
}
