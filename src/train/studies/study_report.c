/* The results of a study as rows, JSON and a chart. */
#include "train/studies/study.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "lockstep/callbacks.h"
#include "lockstep/plot.h"
#include "train/studies/study_statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void study_report_add_note(lk_study_row *row, const char *what, int count)
{
    size_t used = strlen(row->note);
    if (count > 0)
        snprintf(row->note + used, sizeof row->note - used, "%s%s (%d of %d)", used ? ", " : "", what, count,
                 row->runs);
}

/* Sums over one value's runs. */
typedef struct gathered {
    double values[LK_STUDY_MAX_SEEDS]; /* the measure of each counted run */
    double epochs, accuracy;
    int accuracies; /* runs in `accuracy` */
} gathered;

static void study_report_gather_run(const lk_study *study, const lk_study_run *run, lk_study_row *row, gathered *sums)
{
    if (!run->ended)
        return;
    if (row->devices == 0 && run->devices > 0) {
        row->devices = run->devices;
        row->shards = run->shards;
    }
    if (run->status != LK_OK) {
        row->failed++;
        return;
    }
    if (run->result.val.accuracy.count > 0) {
        sums->accuracy += lk_mean_value(run->result.val.accuracy);
        sums->accuracies++;
    }
    if (study->opts.measure == LK_MEASURE_THROUGHPUT) {
        sums->values[row->counted++] = run->result.images_per_second;
    } else if (run->reached) {
        sums->epochs += (double)run->epochs_to_accuracy;
        sums->values[row->counted++] = run->seconds_to_accuracy;
    } else {
        row->not_reached++;
    }
}

int lk_study_row_count(const lk_study *study)
{
    return study->n_values;
}

lk_study_row lk_study_row_at(const lk_study *study, int index)
{
    gathered sums = {.accuracies = 0};
    lk_study_row row = {.value = study->values[index], .runs = (int)study->opts.seeds};
    for (int i = index; i < study->n_runs; i += study->n_values)
        study_report_gather_run(study, &study->runs[i], &row, &sums);
    lk_interval interval = lk__mean_interval(sums.values, row.counted);
    bool timed = study->opts.measure == LK_MEASURE_TIME_TO_ACCURACY;
    row.mean = interval.mean;
    row.low = interval.low;
    row.high = interval.high;
    row.epochs = timed && row.counted > 0 ? sums.epochs / row.counted : NAN;
    row.val_accuracy = sums.accuracies > 0 ? sums.accuracy / sums.accuracies : NAN;
    study_report_add_note(&row, "not reached", row.not_reached);
    study_report_add_note(&row, "failed", row.failed);
    study_report_add_note(&row, "not run", row.runs - row.counted - row.not_reached - row.failed);
    return row;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* Returns null if the value was not measured. */
static json_t *study_report_number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *study_report_integer_json(bool measured, int64_t value)
{
    return measured ? json_integer((json_int_t)value) : json_null();
}

/* Returns null for a text that is missing, or that is not UTF-8, as a file's name may be. */
static json_t *study_report_text_json(const char *value)
{
    json_t *string = value ? json_string(value) : NULL;
    return string ? string : json_null();
}

static const char *study_report_status_text(const lk_study_run *run)
{
    if (!run->ended)
        return "not run";
    return run->status == LK_OK ? "ok" : lk_status_name(run->status);
}

static json_t *study_report_run_json(const lk_study *study, const lk_study_run *run)
{
    const lk_train_result *result = &run->result;
    bool trained = run->ended && run->devices > 0, succeeded = trained && run->status == LK_OK;
    bool timed = study->opts.measure == LK_MEASURE_TIME_TO_ACCURACY;
    return json_pack(
        "{so sI ss so so so so so so so so so so so so so so so so}", "value",
        study_report_text_json(study->values[run->value]), "seed", (json_int_t)run->seed, "status",
        study_report_status_text(run), "message", study_report_text_json(run->message), "devices",
        study_report_integer_json(trained, run->devices), "shards", study_report_integer_json(trained, run->shards),
        "batch_size", study_report_integer_json(trained, run->batch_size), "epochs",
        study_report_integer_json(trained, result->epochs), "steps", study_report_integer_json(trained, result->steps),
        "samples_seen", study_report_integer_json(trained, result->samples_seen), "seconds",
        study_report_number_json(trained ? result->seconds : NAN), "total_seconds",
        study_report_number_json(trained ? result->total_seconds : NAN), "images_per_second",
        study_report_number_json(succeeded ? result->images_per_second : NAN), "val_loss",
        study_report_number_json(lk_mean_value(result->val.loss)), "val_accuracy",
        study_report_number_json(lk_mean_value(result->val.accuracy)), "reached",
        timed && succeeded ? json_boolean(run->reached) : json_null(), "seconds_to_accuracy",
        study_report_number_json(succeeded && run->reached ? run->seconds_to_accuracy : NAN), "epochs_to_accuracy",
        study_report_integer_json(succeeded && run->reached, run->epochs_to_accuracy), "digest",
        study_report_text_json(succeeded ? result->digest : NULL));
}

static json_t *study_report_row_json(const lk_study_row *row)
{
    bool interval = row->low < row->high;
    return json_pack("{so si si si si so so so so so so so ss}", "value", study_report_text_json(row->value), "runs",
                     row->runs, "counted", row->counted, "not_reached", row->not_reached, "failed", row->failed, "mean",
                     study_report_number_json(row->mean), "low", study_report_number_json(interval ? row->low : NAN),
                     "high", study_report_number_json(interval ? row->high : NAN), "epochs",
                     study_report_number_json(row->epochs), "val_accuracy", study_report_number_json(row->val_accuracy),
                     "devices", study_report_integer_json(row->devices > 0, row->devices), "shards",
                     study_report_integer_json(row->devices > 0, row->shards), "note", row->note);
}

/* Takes ownership of the item. Returns false if there is no memory, or was none to make the item (NULL). */
static bool study_report_append_item(json_t *array, json_t *item)
{
    return json_array_append_new(array, item) == 0;
}

static bool study_report_fill_arrays(const lk_study *study, json_t *values, json_t *seeds, json_t *rows, json_t *runs)
{
    bool filled = values && seeds && rows && runs;
    for (int v = 0; filled && v < study->n_values; v++) {
        lk_study_row row = lk_study_row_at(study, v);
        filled = study_report_append_item(values, study_report_text_json(study->values[v])) &&
                 study_report_append_item(rows, study_report_row_json(&row));
    }
    for (int64_t s = 0; filled && s < study->opts.seeds; s++)
        filled = study_report_append_item(seeds, json_integer(study->config.seed + s));
    for (int i = 0; filled && i < study->n_runs; i++)
        filled = study_report_append_item(runs, study_report_run_json(study, &study->runs[i]));
    return filled;
}

/* Returns a setting of the target, borrowed; null if it is the setting that varies, or if the study has no target. */
static json_t *study_report_target_json(const lk_study *study, const char *name)
{
    json_t *value = json_object_get(study->settings, name);
    return study->opts.measure == LK_MEASURE_TIME_TO_ACCURACY && value ? value : json_null();
}

static json_t *study_report_json(const lk_study *study)
{
    bool timed = study->opts.measure == LK_MEASURE_TIME_TO_ACCURACY;
    json_t *values = json_array(), *seeds = json_array(), *rows = json_array(), *runs = json_array(), *object = NULL;
    if (study_report_fill_arrays(study, values, seeds, rows, runs))
        object = json_pack("{ss sO ss ss sO sO sO sb sO sO sO}", "over", study->setting, "values", values, "measure",
                           timed ? "time-to-accuracy" : "throughput", "unit", timed ? "seconds" : "images/s", "target",
                           study_report_target_json(study, "target-accuracy"), "patience",
                           study_report_target_json(study, "patience"), "seeds", seeds, "complete",
                           lk_study_complete(study), "settings", study->settings, "rows", rows, "runs", runs);
    json_decref(values);
    json_decref(seeds);
    json_decref(rows);
    json_decref(runs);
    return object;
}

char *lk_study_json(const lk_study *study)
{
    /* 15 digits reproduce any decimal number of up to 15 digits. */
    const size_t flags = JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15);
    json_t *object = study_report_json(study);
    size_t size = object ? json_dumpb(object, NULL, 0, flags) : 0;
    char *json = size ? lk__calloc(size + 2, 1) : NULL;
    if (json) {
        json_dumpb(object, json, size, flags);
        json[size] = '\n';
    } else {
        lk__fail(LK_ERR_MEMORY, "study: no memory for its JSON");
    }
    json_decref(object);
    return json;
}

lk_status lk_study_write_json(const lk_study *study, const char *path)
{
    char *json = lk_study_json(study);
    if (!json)
        return LK_ERR_MEMORY;
    lk_status status = lk__replace_file(path, json, strlen(json));
    lk__free(json);
    return status;
}

/* --- chart -------------------------------------------------------------------------------------------------------- */

/* Writes "lenet on fashion-mnist", without the one that varies, and how the seeds are summarized. cut: some interval is
 * cut off at 0. */
static void study_report_write_title(const lk_study *study, bool cut, char *title, size_t size)
{
    const char *model = json_string_value(json_object_get(study->settings, "model"));
    const char *data = json_string_value(json_object_get(study->settings, "data"));
    int used = snprintf(title, size, "%s%s%s", model ? model : "", model && data ? " on " : "", data ? data : "");
    if (study->opts.seeds > 1 && used >= 0 && (size_t)used < size)
        snprintf(title + used, size - (size_t)used, "%smean and 95%% interval of %lld seeds%s", used ? ": " : "",
                 (long long)study->opts.seeds, cut ? ", cut at 0" : "");
}

/* Writes the setting's name with spaces, "batch size" for batch-size. */
static void study_report_write_label(const lk_study *study, char *label, size_t size)
{
    snprintf(label, size, "%s", study->setting);
    for (char *hyphen = label; (hyphen = strchr(hyphen, '-')) != NULL;)
        *hyphen = ' ';
}

static void study_report_write_axis(const lk_study *study, char *axis, size_t size)
{
    if (study->opts.measure == LK_MEASURE_THROUGHPUT)
        snprintf(axis, size, "throughput (images / s)");
    else if (strcmp(study->setting, "target-accuracy") == 0)
        snprintf(axis, size, "time to accuracy (s)");
    else
        snprintf(axis, size, "time to accuracy %g (s)", study->config.stop.target_accuracy);
}

lk_status lk_study_write_chart(const lk_study *study, const char *path)
{
    lk_study_row rows[LK_STUDY_MAX_VALUES];
    lk_bar bars[LK_STUDY_MAX_VALUES];
    char title[256] = "", label[64], axis[64];
    bool cut = false;
    for (int v = 0; v < study->n_values; v++) {
        const lk_study_row *row = &rows[v];
        rows[v] = lk_study_row_at(study, v);
        bars[v] = (lk_bar){.label = row->value, .value = row->mean, .note = *row->note ? row->note : NULL};
        if (row->low < row->high) {
            bars[v].low = fmax(row->low, 0); /* neither measure can be negative */
            bars[v].high = row->high;
            cut |= row->low < 0;
        }
    }
    study_report_write_title(study, cut, title, sizeof title);
    study_report_write_label(study, label, sizeof label);
    study_report_write_axis(study, axis, sizeof axis);
    lk_bar_chart chart = {
        .title = title, .x_label = label, .y_label = axis, .bars = bars, .bar_count = study->n_values};
    return lk_bar_chart_write(&chart, path);
}
