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

/* A reader's user. */
typedef struct step_lines {
    lk_step_records *steps;
    const char *path;
} step_lines;

static void step_records_restart(void *user)
{
    ((const step_lines *)user)->steps->count = 0;
}

static lk_status step_records_take(void *user, const char *line, size_t length, long long number)
{
    const step_lines *lines = user;
    json_t *object;
    LK_TRY(lk__record_parse(lines->path, number, line, length, &object));
    lk_status status = step_records_add(lines->steps, lines->path, object, number);
    json_decref(object);
    return status;
}

lk_status lk__step_records_read(const char *path, lk_step_records *steps)
{
    step_lines lines = {steps, path};
    return lk__record_follow(&steps->tail, path, &(lk_record_reader){step_records_restart, step_records_take, &lines});
}

void lk__step_records_free(lk_step_records *steps)
{
    for (int i = 0; i < LK_STEP_COLUMNS; i++)
        lk__free(steps->column[i]);
    *steps = (lk_step_records){0};
}
