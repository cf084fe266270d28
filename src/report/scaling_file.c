/* One table lists the members of a report, both for writing and for reading. */
#include "report/scaling_file.h"

#include "base/minmax.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/json.h"
#include "report/record_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct row {
    const char *name;
    lk_field_kind kind; /* text, int or real */
    size_t offset, size;
} row;

#define ROW(type, kind_, name_)                                                                               \
    {                                                                                                         \
        .name = #name_, .kind = (kind_), .offset = offsetof(type, name_), .size = sizeof((type *)NULL)->name_ \
    }
#define TEXT(name_) ROW(lk_scaling_report, LK_FIELD_TEXT, name_)
#define COUNT(name_) ROW(lk_scaling_report, LK_FIELD_INT, name_)
#define NUMBER(name_) ROW(lk_scaling_report, LK_FIELD_REAL, name_)
#define WORKER_COUNT(name_) ROW(lk_scaling_worker, LK_FIELD_INT, name_)
#define WORKER_NUMBER(name_) ROW(lk_scaling_worker, LK_FIELD_REAL, name_)

static const row rows[] = {
    TEXT(model),
    TEXT(data),
    TEXT(strategy),
    TEXT(transport),
    TEXT(storage),
    TEXT(dtype),
    TEXT(kind),
    TEXT(implementations),
    TEXT(host),
    COUNT(devices),
    COUNT(storing_devices),
    COUNT(processes),
    COUNT(batch_size),
    COUNT(shards),
    COUNT(parameters),
    NUMBER(images_per_second),
    COUNT(steps),
    NUMBER(step_seconds),
    NUMBER(compute),
    NUMBER(exchange),
    NUMBER(slowest),
    NUMBER(input),
    NUMBER(other),
    TEXT(slowest_device),
    NUMBER(core_share),
    NUMBER(computing),
    NUMBER(update),
    NUMBER(latency),
    NUMBER(bandwidth),
    COUNT(messages),
    COUNT(tree_devices),
    NUMBER(message_share),
    NUMBER(sliced_bytes),
    NUMBER(whole_bytes),
    NUMBER(one_device_images_per_second),
    COUNT(servers),
    NUMBER(max_staleness),
    NUMBER(step_samples),
    NUMBER(server_bytes),
    NUMBER(server_update),
    COUNT(workers),
};
static const row worker_rows[] = {
    ROW(lk_scaling_worker, LK_FIELD_TEXT, name),
    WORKER_COUNT(devices),
    WORKER_COUNT(steps),
    WORKER_COUNT(samples),
    WORKER_NUMBER(step_seconds),
    WORKER_NUMBER(compute),
    WORKER_NUMBER(exchange),
    WORKER_NUMBER(slowest),
    WORKER_NUMBER(input),
    WORKER_NUMBER(other),
    WORKER_NUMBER(computing),
};
enum {
    ROW_COUNT = sizeof rows / sizeof rows[0],
    WORKER_ROW_COUNT = sizeof worker_rows / sizeof worker_rows[0],
    MOST_BYTES = 1 << 20
};
static const long long MOST_COUNT = 1LL << 53; /* predictions add counts up, and compute with them as doubles */

void lk__scaling_clear(lk_scaling_report *report)
{
    memset(report, 0, sizeof *report);
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].kind == LK_FIELD_REAL)
            *(double *)((char *)report + rows[i].offset) = NAN;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* The row's field of `object`, a report or a worker. */
static lk_field scaling_file_row_field(const row *r, const void *object)
{
    const void *value = (const char *)object + r->offset;
    if (r->kind == LK_FIELD_TEXT)
        return LK_TEXT(r->name, (const char *)value);
    if (r->kind == LK_FIELD_INT)
        return LK_INT(r->name, *(const int64_t *)value);
    return lk__real_or_null(r->name, *(const double *)value);
}

static void scaling_file_put_speedup(lk_bytes *out, const lk_scaling_report *report)
{
    lk_speedup s = lk_scaling_speedup(report);
    bool known = isfinite(s.speedup);
    lk__json_field(out, known ? LK_REAL("speedup", s.speedup) : LK_NONE("speedup"));
    lk__json_field(out, known ? LK_REAL("efficiency", s.efficiency) : LK_NONE("efficiency"));
    lk__json_field(out, known ? LK_BOOL("speedup_measured", s.measured) : LK_NONE("speedup_measured"));
}

static int scaling_file_listed_workers(const lk_scaling_report *report)
{
    return (int)lk__min(report->workers, LK_SCALING_WORKERS);
}

static void scaling_file_put_workers(lk_bytes *out, const lk_scaling_report *report)
{
    lk__json_open(out, "worker", '[');
    for (int w = 0; w < scaling_file_listed_workers(report); w++) {
        lk__json_open(out, NULL, '{');
        for (int i = 0; i < WORKER_ROW_COUNT; i++)
            lk__json_field(out, scaling_file_row_field(&worker_rows[i], &report->worker[w]));
        lk__json_close(out, '}');
    }
    lk__json_close(out, ']');
}

void lk__scaling_put(lk_bytes *out, const char *name, const lk_scaling_report *report)
{
    lk__json_open(out, name, '{');
    for (int i = 0; i < ROW_COUNT; i++)
        lk__json_field(out, scaling_file_row_field(&rows[i], report));
    scaling_file_put_workers(out, report);
    scaling_file_put_speedup(out, report);
    lk__json_close(out, '}');
}

lk_status lk_scaling_write(const lk_scaling_report *report, const char *path)
{
    lk_bytes text = {0};
    lk__scaling_put(&text, NULL, report);
    lk__bytes_char(&text, '\n');
    lk_status status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = lk__replace_file(path, text.data, text.size);
    lk__bytes_free(&text);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static lk_status scaling_file_read_row(const char *path, const row *r, const json_t *object, void *whole)
{
    const json_t *value = json_object_get(object, r->name);
    void *into = (char *)whole + r->offset;
    if (!value && strcmp(r->name, "tree_devices") == 0)
        return LK_OK;                                      /* a report of 0.1.0: none do */
    if (!value && strcmp(r->name, "message_share") == 0) { /* also a report of 0.1.0 */
        *(double *)into = 1;
        return LK_OK;
    }
    if (!value)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s is missing: not a whole scaling report", path, r->name);
    if (r->kind == LK_FIELD_TEXT) {
        if (!json_is_string(value) || json_string_length(value) >= r->size)
            LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a text of less than %zu bytes", path, r->name, r->size);
        memcpy(into, json_string_value(value), json_string_length(value) + 1);
        return LK_OK;
    }
    if (r->kind == LK_FIELD_INT) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > MOST_COUNT)
            LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a whole number from 0 to %lld", path, r->name, MOST_COUNT);
        *(int64_t *)into = json_integer_value(value);
        return LK_OK;
    }
    if (!json_is_number(value) && !json_is_null(value))
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a number, or null", path, r->name);
    *(double *)into = json_is_null(value) ? NAN : json_number_value(value);
    return LK_OK;
}

static lk_status scaling_file_check_counts(const char *path, const lk_scaling_report *report)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"devices", report->devices},
        {"processes", report->processes},
        {"batch_size", report->batch_size},
        {"shards", report->shards},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 1)
            LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be at least 1", path, counts[i].name);
    return LK_OK;
}

static lk_status scaling_file_read_workers(const char *path, const json_t *root, lk_scaling_report *report)
{
    const json_t *list = json_object_get(root, "worker");
    int n = scaling_file_listed_workers(report);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        LK_FAIL(LK_ERR_FORMAT, "%s: worker: must be a list of %d, as there are %lld workers", path, n,
                (long long)report->workers);
    for (int w = 0; w < n; w++)
        for (int i = 0; i < WORKER_ROW_COUNT; i++)
            LK_TRY(scaling_file_read_row(path, &worker_rows[i], json_array_get(list, (size_t)w), &report->worker[w]));
    return LK_OK;
}

static lk_status scaling_file_parse(const char *path, const lk_bytes *text, lk_scaling_report *report)
{
    json_error_t error;
    json_t *root = json_loadb((const char *)text->data, text->size, JSON_REJECT_DUPLICATES, &error);
    lk_status status = LK_OK;
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        LK_FAIL(LK_ERR_MEMORY, "%s: no memory to read it", path);
    if (text->size == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: is empty, and no scaling report", path);
    if (!root)
        LK_FAIL(LK_ERR_FORMAT, "%s: line %d, column %d: is not a scaling report: no JSON from there on", path,
                error.line, error.column);
    lk__scaling_clear(report);
    for (int i = 0; i < ROW_COUNT && status == LK_OK; i++)
        status = scaling_file_read_row(path, &rows[i], root, report);
    if (status == LK_OK)
        status = scaling_file_read_workers(path, root, report);
    json_decref(root);
    return status == LK_OK ? scaling_file_check_counts(path, report) : status;
}

static lk_status scaling_file_load_text(const char *path, lk_bytes *text)
{
    int error = lk__bytes_read_file(text, path, MOST_BYTES);
    if (error == ENOENT)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: there is no such file or folder", path);
    if (error)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
    if (text->size > MOST_BYTES)
        LK_FAIL(LK_ERR_FORMAT, "%s: more than %d bytes are no scaling report", path, MOST_BYTES);
    return lk__bytes_status(text);
}

lk_status lk__scaling_read_file(const char *path, bool may_be_pipe, lk_scaling_report *report)
{
    lk_bytes text = {0};
    lk__scaling_clear(report);
    lk_status status = may_be_pipe ? scaling_file_load_text(path, &text) : lk__record_load(path, MOST_BYTES, &text);
    if (status == LK_OK)
        status = scaling_file_parse(path, &text, report);
    lk__bytes_free(&text);
    return status;
}
