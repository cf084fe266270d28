/* Scaling reports as files. One table says what is in them, for writing and for reading. */
#include "train/scaling.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "io/json.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct row {
    const char *name;
    lk_field_kind kind; /* text, count or number */
    size_t offset, size;
} row;

#define ROW(kind_, name_)                                                              \
    {                                                                                  \
        .name = #name_, .kind = (kind_), .offset = offsetof(lk_scaling_report, name_), \
        .size = sizeof((lk_scaling_report *)NULL)->name_                               \
    }
#define TEXT(name_) ROW(LK_FIELD_TEXT, name_)
#define COUNT(name_) ROW(LK_FIELD_INT, name_)
#define NUMBER(name_) ROW(LK_FIELD_REAL, name_)

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
    NUMBER(sliced_bytes),
    NUMBER(whole_bytes),
    NUMBER(one_device_images_per_second),
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0], MOST_BYTES = 1 << 20 };

void lk__scaling_clear(lk_scaling_report *report)
{
    memset(report, 0, sizeof *report);
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].kind == LK_FIELD_REAL)
            *(double *)((char *)report + rows[i].offset) = NAN;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static lk_field field_of(const row *r, const lk_scaling_report *report)
{
    const void *value = (const char *)report + r->offset;
    if (r->kind == LK_FIELD_TEXT)
        return LK_TEXT(r->name, (const char *)value);
    if (r->kind == LK_FIELD_INT)
        return LK_INT(r->name, *(const int64_t *)value);
    double number = *(const double *)value;
    return isfinite(number) ? LK_REAL(r->name, number) : LK_NONE(r->name);
}

static void put_speedup(lk__bytes *out, const lk_scaling_report *report)
{
    lk_speedup s = lk_scaling_speedup(report);
    bool known = isfinite(s.speedup);
    lk__json_field(out, known ? LK_REAL("speedup", s.speedup) : LK_NONE("speedup"));
    lk__json_field(out, known ? LK_REAL("efficiency", s.efficiency) : LK_NONE("efficiency"));
    lk__json_field(out, known ? LK_BOOL("speedup_measured", s.measured) : LK_NONE("speedup_measured"));
}

void lk__scaling_put(lk__bytes *out, const char *name, const lk_scaling_report *report)
{
    lk__json_open(out, name, '{');
    for (int i = 0; i < ROW_COUNT; i++)
        lk__json_field(out, field_of(&rows[i], report));
    put_speedup(out, report);
    lk__json_close(out, '}');
}

lk_status lk_scaling_write(const lk_scaling_report *report, const char *path)
{
    lk__bytes text = {0};
    lk__scaling_put(&text, NULL, report);
    lk__bytes_char(&text, '\n');
    lk_status status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = lk__replace_file(path, text.data, text.size);
    lk__bytes_free(&text);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static lk_status read_text(const char *path, const row *r, const json_t *value, char *text)
{
    if (!json_is_string(value) || json_string_length(value) >= r->size)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a text of less than %zu bytes", path, r->name, r->size);
    memcpy(text, json_string_value(value), json_string_length(value) + 1);
    return LK_OK;
}

static lk_status read_row(const char *path, const row *r, const json_t *root, lk_scaling_report *report)
{
    const json_t *value = json_object_get(root, r->name);
    void *into = (char *)report + r->offset;
    if (!value)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s is missing: not a whole scaling report", path, r->name);
    if (r->kind == LK_FIELD_TEXT)
        return read_text(path, r, value, into);
    if (r->kind == LK_FIELD_INT) {
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a whole number from 0", path, r->name);
        *(int64_t *)into = json_integer_value(value);
        return LK_OK;
    }
    if (!json_is_number(value) && !json_is_null(value))
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: must be a number, or null", path, r->name);
    *(double *)into = json_is_null(value) ? NAN : json_number_value(value);
    return LK_OK;
}

static lk_status check_counts(const char *path, const lk_scaling_report *report)
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

static lk_status parse(const char *path, const lk__bytes *text, lk_scaling_report *report)
{
    json_error_t error;
    json_t *root = json_loadb((const char *)text->data, text->size, JSON_REJECT_DUPLICATES, &error);
    lk_status status = LK_OK;
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        LK_FAIL(LK_ERR_MEMORY, "%s: no memory to read it", path);
    if (!root)
        LK_FAIL(LK_ERR_FORMAT, "%s: line %d, column %d: is not a scaling report: no JSON from there on", path,
                error.line, error.column);
    lk__scaling_clear(report);
    for (int i = 0; i < ROW_COUNT && status == LK_OK; i++)
        status = read_row(path, &rows[i], root, report);
    json_decref(root);
    return status == LK_OK ? check_counts(path, report) : status;
}

static lk_status read_all(const char *path, lk__bytes *text)
{
    char buffer[4096];
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: there is no such file or folder", path);
    if (!file)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    for (size_t n; text->size <= MOST_BYTES && (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        lk__bytes_put(text, buffer, n);
    bool failed = ferror(file);
    int error = errno;
    fclose(file);
    if (failed)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
    if (text->size > MOST_BYTES)
        LK_FAIL(LK_ERR_FORMAT, "%s: more than %d bytes are no scaling report", path, MOST_BYTES);
    return lk__bytes_status(text);
}

static lk_status read_file(const char *path, lk_scaling_report *report)
{
    lk__bytes text = {0};
    lk_status status = read_all(path, &text);
    if (status == LK_OK)
        status = parse(path, &text, report);
    lk__bytes_free(&text);
    return status;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

/* Of "scaling.json" 1, of "scaling-7.json" 7; of other names 0. */
static int run_of(const char *name)
{
    static const char start[] = "scaling-";
    char *end;
    if (strcmp(name, "scaling.json") == 0)
        return 1;
    if (strncmp(name, start, sizeof start - 1) != 0)
        return 0;
    long run = strtol(name + sizeof start - 1, &end, 10);
    return strcmp(end, ".json") == 0 && run > 1 && run < INT32_MAX ? (int)run : 0;
}

/* The last one before `before`; 0: there is none. */
static lk_status last_run(const char *dir, int before, int *run)
{
    DIR *folder = opendir(dir);
    *run = 0;
    if (!folder)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        int number = run_of(entry->d_name);
        if (number > *run && number < before)
            *run = number;
    }
    closedir(folder);
    return LK_OK;
}

static lk_status read_run(const char *dir, int run, lk_scaling_report *report)
{
    size_t size = strlen(dir) + 32;
    char *path = lk__calloc(size, 1);
    if (!path)
        return LK_ERR_MEMORY;
    if (run == 1)
        snprintf(path, size, "%s/scaling.json", dir);
    else
        snprintf(path, size, "%s/scaling-%d.json", dir, run);
    lk_status status = read_file(path, report);
    lk__free(path);
    return status;
}

lk_status lk_scaling_read(const char *path, lk_scaling_report *report)
{
    struct stat about;
    int run;
    lk__scaling_clear(report);
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return read_file(path, report);
    LK_TRY(last_run(path, INT32_MAX, &run));
    if (run == 0)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: holds no scaling report: `lockstep train --log-dir` leaves one", path);
    return read_run(path, run, report);
}

static bool is_like(const lk_scaling_report *one, lk_scaling_report *report)
{
    if (strcmp(one->host, report->host) != 0)
        return false;
    bool like = lk_scaling_compare(one, report) == LK_OK;
    lk_error_clear(); /* another run's file is nothing that this one has to answer for */
    return like;
}

lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report)
{
    lk_scaling_report one;
    DIR *folder = opendir(dir);
    if (!folder) /* it is made when the records begin */
        return LK_OK;
    closedir(folder);
    for (int run = INT32_MAX; run > 0;) {
        LK_TRY(last_run(dir, run, &run));
        if (run > 0 && read_run(dir, run, &one) == LK_OK && is_like(&one, report))
            return LK_OK;
        if (lk_error_status() == LK_ERR_MEMORY)
            return LK_ERR_MEMORY;
        lk_error_clear();
    }
    return LK_OK;
}
