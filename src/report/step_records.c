#include "report/step_records.h"

#include "base/mem.h"
#include "base/status.h"
#include "report/record_file.h"

#include <math.h>

static double step_records_member(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static lk_status step_records_add(lk_step_records *steps, const char *path, const json_t *line, long long number)
{
    static const char *const names[LK_STEP_COLUMNS] = {[LK_STEP_NUMBER] = "step",
                                                       [LK_STEP_EPOCH] = "epoch",
                                                       [LK_STEP_LOSS] = "train_loss",
                                                       [LK_STEP_ACCURACY] = "train_accuracy",
                                                       [LK_STEP_RATE] = "rate"};
    int64_t capacity = steps->capacity;
    double step = step_records_member(line, names[LK_STEP_NUMBER]);
    if (!(step >= 1) || (steps->count > 0 && step <= steps->column[LK_STEP_NUMBER][steps->count - 1]))
        LK_FAIL(LK_ERR_FORMAT, "%s:%lld: must be a step later than the one before", path, number);
    for (int i = 0; i < LK_STEP_COLUMNS; i++) {
        capacity = steps->capacity;
        LK_TRY(LK_GROW(steps->column[i], &capacity, steps->count + 1));
        steps->column[i][steps->count] = step_records_member(line, names[i]);
    }
    steps->capacity = capacity;
    steps->count++;
    return LK_OK;
}

static lk_status step_records_read_lines(lk_step_records *steps, const char *path, const lk_bytes *text)
{
    const char *line = (const char *)text->data, *end = text->size ? line + text->size : line, *stop;
    for (long long number = 1; line < end && (stop = memchr(line, '\n', (size_t)(end - line))); number++) {
        json_t *object;
        LK_TRY(lk__record_parse(path, number, line, (size_t)(stop - line), &object));
        lk_status status = step_records_add(steps, path, object, number);
        json_decref(object);
        LK_TRY(status);
        line = stop + 1;
    }
    return LK_OK;
}

lk_status lk__step_records_read(const char *path, lk_step_records *steps)
{
    lk_bytes text = {0};
    lk_status status = lk__record_load(path, LK_RECORD_MOST, &text);
    if (status == LK_OK)
        status = step_records_read_lines(steps, path, &text);
    lk__bytes_free(&text);
    return status;
}

void lk__step_records_free(lk_step_records *steps)
{
    for (int i = 0; i < LK_STEP_COLUMNS; i++)
        lk__free(steps->column[i]);
    *steps = (lk_step_records){0};
}
