#include "base/mem.h"
#include "base/status.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/record_file.h"
#include "lockstep/predict.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SQUARES = 24, MOST_PAIRS = 12, NAME = 20 };

/* Counts are taken from the file by [label][predicted]. */
typedef struct evaluation {
    int64_t classes;
    const json_t *about; /* array [classes] of objects */
    int64_t *counts;     /* [classes][classes] */
} evaluation;

typedef struct pair {
    int64_t label, predicted, count;
} pair;

static lk_status page_evaluation_load(const char *path, const json_t *object, evaluation *e)
{
    const json_t *rows = json_object_get(object, "confusion");
    e->about = json_object_get(object, "classes");
    e->classes = (int64_t)json_array_size(e->about);
    if (e->classes > LK_CONFUSION_MOST)
        LK_FAIL(LK_ERR_FORMAT, "%s: has %lld classes; a page shows an evaluation of at most %d", path,
                (long long)e->classes, LK_CONFUSION_MOST);
    if (e->classes < 1 || (int64_t)json_array_size(rows) != e->classes)
        LK_FAIL(LK_ERR_FORMAT, "%s: must have classes, and as many rows of a confusion matrix", path);
    e->counts = lk__calloc((size_t)(e->classes * e->classes), sizeof *e->counts);
    if (!e->counts)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < e->classes; i++) {
        const json_t *row = json_array_get(rows, (size_t)i);
        if ((int64_t)json_array_size(row) != e->classes)
            LK_FAIL(LK_ERR_FORMAT, "%s: row %lld of the confusion matrix must have %lld counts", path, (long long)i,
                    (long long)e->classes);
        for (int64_t k = 0; k < e->classes; k++) {
            int64_t count = json_integer_value(json_array_get(row, (size_t)k));
            if (count < 0 || count > INT64_C(1) << 52)
                LK_FAIL(LK_ERR_FORMAT, "%s: a count of the confusion matrix is %lld", path, (long long)count);
            e->counts[i * e->classes + k] = count;
        }
    }
    return LK_OK;
}

/* Writes a class's name, or its number. most: characters, beyond which the middle is left out; 0: all. */
static void page_evaluation_put_name(lk_bytes *out, const evaluation *e, int64_t class, int most)
{
    const char *name = json_string_value(json_object_get(json_array_get(e->about, (size_t) class), "name"));
    if (!name) {
        lk__bytes_format(out, "%lld", (long long)class);
        return;
    }
    lk__html_short(out, name, most);
}

static void page_evaluation_put_square(lk_bytes *out, const evaluation *e, int64_t label, int64_t predicted, double sum)
{
    int64_t count = e->counts[label * e->classes + predicted];
    double share = sum > 0 ? (double)count / sum : 0;
    int depth = count > 0 ? (int)lround(6 + 94 * sqrt(share)) : 0; /* as in a matrix chart */
    lk__bytes_format(out, "<td class=\"%s\" style=\"--d:%d%%\" title=\"", depth > 52 ? "q deep" : "q", depth);
    page_evaluation_put_name(out, e, label, 0);
    lk__bytes_text(out, " → ");
    page_evaluation_put_name(out, e, predicted, 0);
    lk__bytes_format(out, ": %lld (", (long long)count);
    lk__html_percent(out, share, 1);
    lk__bytes_text(out, ")\">");
    if (count > 0)
        lk__bytes_format(out, "%lld", (long long)count);
    lk__bytes_text(out, "</td>");
}

static void page_evaluation_put_matrix(lk_bytes *out, const evaluation *e)
{
    lk__bytes_text(out, "<div class=\"matrix\"><table class=\"confusion\"><caption>Rows are labels, columns are "
                        "predictions</caption>\n<tr><td></td>");
    for (int64_t k = 0; k < e->classes; k++) {
        lk__bytes_text(out, "<th scope=\"col\"><span>");
        page_evaluation_put_name(out, e, k, NAME);
        lk__bytes_text(out, "</span></th>");
    }
    lk__bytes_text(out, "</tr>\n");
    for (int64_t i = 0; i < e->classes; i++) {
        double sum = 0;
        for (int64_t k = 0; k < e->classes; k++)
            sum += (double)e->counts[i * e->classes + k];
        lk__bytes_text(out, "<tr><th scope=\"row\">");
        page_evaluation_put_name(out, e, i, NAME);
        lk__bytes_text(out, "</th>");
        for (int64_t k = 0; k < e->classes; k++)
            page_evaluation_put_square(out, e, i, k, sum);
        lk__bytes_text(out, "</tr>\n");
    }
    lk__bytes_text(out, "</table>\n<div class=\"scale\" aria-label=\"colors: share of the row\"><span>100 %</span>"
                        "<i></i><span>0 %</span><small>of the row</small></div></div>\n");
}

static int page_evaluation_compare_pairs(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->label != y->label ? (x->label > y->label) - (x->label < y->label)
                                : (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

/* Keeps the most frequent pairs while it looks at all of them. */
static void page_evaluation_put_pairs(lk_bytes *out, const evaluation *e)
{
    pair pairs[MOST_PAIRS + 1];
    int n = 0;
    for (int64_t i = 0; i < e->classes * e->classes; i++) {
        bool is_less = n == MOST_PAIRS && e->counts[i] <= pairs[n - 1].count;
        if (i / e->classes == i % e->classes || e->counts[i] == 0 || is_less)
            continue;
        pairs[n++] = (pair){i / e->classes, i % e->classes, e->counts[i]};
        qsort(pairs, (size_t)n, sizeof *pairs, page_evaluation_compare_pairs);
        n = n > MOST_PAIRS ? MOST_PAIRS : n;
    }
    if (n == 0)
        return;
    lk__bytes_text(out, "<h3>Most frequent mistakes</h3>\n<table class=\"list\"><thead><tr><th>label</th><th>taken "
                        "for</th><th class=\"n\">samples</th></tr></thead>\n");
    for (int i = 0; i < n; i++) {
        lk__bytes_text(out, "<tr><td>");
        page_evaluation_put_name(out, e, pairs[i].label, 2 * NAME);
        lk__bytes_text(out, "</td><td>");
        page_evaluation_put_name(out, e, pairs[i].predicted, 2 * NAME);
        lk__bytes_format(out, "</td><td class=\"n\">%lld</td></tr>\n", (long long)pairs[i].count);
    }
    lk__bytes_text(out, "</table>\n");
}

static void page_evaluation_put_classes(lk_bytes *out, const evaluation *e)
{
    static const char *const names[] = {"precision", "recall", "f1"};
    lk__bytes_text(out, "<details><summary>Precision and recall of each class</summary>\n<table class=\"list\"><thead>"
                        "<tr><th>class</th><th class=\"n\">precision</th><th class=\"n\">recall</th><th class=\"n\">F1"
                        "</th></tr></thead>\n");
    for (int64_t i = 0; i < e->classes; i++) {
        lk__bytes_text(out, "<tr><td>");
        page_evaluation_put_name(out, e, i, 2 * NAME);
        for (int k = 0; k < 3; k++) {
            const json_t *value = json_object_get(json_array_get(e->about, (size_t)i), names[k]);
            lk__bytes_text(out, "</td><td class=\"n\">");
            lk__html_number(out, json_is_number(value) ? json_number_value(value) : NAN);
        }
        lk__bytes_text(out, "</td></tr>\n");
    }
    lk__bytes_text(out, "</table></details>\n");
}

lk_status lk__page_put_evaluation(lk_bytes *out, const char *path, const char *matrix)
{
    lk_bytes text = {0}, picture = {0};
    json_t *object = NULL;
    evaluation e = {0};
    lk_status status = lk__record_load(path, LK_RECORD_MOST, &text);
    if (status == LK_OK)
        status = lk__record_parse(path, 0, (const char *)text.data, text.size, &object);
    if (status == LK_OK)
        status = page_evaluation_load(path, object, &e);
    if (status == LK_OK && e.classes > MOST_SQUARES)
        status = lk__html_picture(&picture, matrix, "the confusion matrix");
    if (status == LK_ERR_NOT_FOUND && picture.size == 0 && e.counts) { /* a build without libcairo draws none */
        lk_error_clear();
        status = LK_OK;
    }
    if (status == LK_OK) {
        const json_t *accuracy = json_object_get(object, "accuracy");
        lk__bytes_text(out, "<section><h2>What it confuses</h2>\n<p>");
        lk__bytes_format(out, "%lld samples were evaluated, ",
                         (long long)json_integer_value(json_object_get(object, "count")));
        lk__html_percent(out, json_is_number(accuracy) ? json_number_value(accuracy) : NAN, 2);
        lk__bytes_text(out, " of them were classified correctly.</p>\n<div class=\"two\"><div>");
        if (e.classes <= MOST_SQUARES)
            page_evaluation_put_matrix(out, &e);
        lk__bytes_put(out, picture.data, picture.size);
        lk__bytes_text(out, "</div><div>");
        page_evaluation_put_pairs(out, &e);
        page_evaluation_put_classes(out, &e);
        lk__bytes_text(out, "</div></div></section>\n");
    }
    json_decref(object);
    lk__free(e.counts);
    lk__bytes_free(&text);
    lk__bytes_free(&picture);
    return status;
}
