/* Reads options of a training, a line of the input each: "name=value" as on the command line, without the dashes. Then
 * makes what is made of them before data are read. */
#include "fuzz.h"

#include "core/device_spec.h"
#include "data/convert.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "train/plan/plan.h"
#include "train/plan/strategy_options.h"

#include <math.h>
#include <string.h>

enum { MOST_LINES = 64 };

/* Splits the text into arguments, in place and after "--", which has to be before it. Returns their number. */
static int split(char *text, char *lines[MOST_LINES])
{
    int n = 0;
    for (char *line = text, *end; line && n < MOST_LINES; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        lines[n++] = line;
    }
    return n;
}

/* A value reads back as it was written. */
static void check_texts(const lk_train_config *config)
{
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        char first[512], second[512];
        lk_train_config copy = *config;
        const lk_option *option = &lk_train_options[i];
        if (!fuzz_went_well(lk_options_text(option, config, first, sizeof first)) ||
            !fuzz_went_well(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, &copy, option->name, first)))
            continue; /* it is too long, or has a default outside of its range */
        FUZZ_CHECK(lk_options_text(option, &copy, second, sizeof second) == LK_OK && strcmp(first, second) == 0);
    }
}

static void check_plan(const lk_train_config *config)
{
    lk_plan plan = {0};
    if (!fuzz_went_well(lk__plan_numbers(config, config->model, &plan)))
        return;
    FUZZ_CHECK(plan.batch_size >= 1 && plan.epochs >= 1);
    for (double epoch = 0; epoch < 3; epoch += 0.5)
        FUZZ_CHECK(!isnan(lk_schedule_rate(&plan.schedule, epoch)));
    fuzz_went_well(lk__check_shards(lk__plan_shards(config, plan.batch_size, 2), plan.batch_size, 2));
}

static void check_parts(const lk_train_config *config)
{
    lk_device_spec_entry entries[LK_MAX_DEVICES];
    lk_checkpoint_opts checkpoints = {0};
    lk_augment_opts augment = {0};
    lk_dataset_opts data = lk_train_dataset_opts(config);
    int64_t c, h, w;
    int n;
    if (config->devices.spec &&
        fuzz_went_well(lk__device_spec_parse(config->devices.spec, entries, LK_MAX_DEVICES, &n)))
        FUZZ_CHECK(n >= 1 && n <= LK_MAX_DEVICES);
    if (fuzz_went_well(lk_augment_parse(config->data.augment, &augment)))
        FUZZ_CHECK(augment.crop_padding >= 0 && augment.cutout >= 0);
    if (fuzz_went_well(lk__parse_resize(config->data.resize, &h, &w)))
        FUZZ_CHECK(h >= 0 && w >= 0);
    if (fuzz_went_well(lk__parse_shape(config->data.image_shape, &c, &h, &w)))
        FUZZ_CHECK(c >= 0 && h >= 0 && w >= 0);
    if (fuzz_went_well(lk_checkpoint_parse_every(config->checkpoints.every, &checkpoints)))
        FUZZ_CHECK(checkpoints.every_steps >= 0 && checkpoints.every_minutes >= 0);
    fuzz_went_well(lk__check_data_opts(&data));
    fuzz_went_well(lk__check_strategy_options(config));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_train_config config;
    char *lines[MOST_LINES], *arguments[MOST_LINES];
    int positionals = 0;
    char *text = strndup((const char *)data, size);
    FUZZ_CHECK(text && lk_train_defaults(NULL, &config) == LK_OK);
    int n = split(text, lines);
    for (int i = 0; i < n; i++) {
        size_t bytes = strlen(lines[i]) + 3;
        arguments[i] = malloc(bytes);
        FUZZ_CHECK(arguments[i]);
        snprintf(arguments[i], bytes, "--%s", lines[i]);
    }
    char *order[MOST_LINES]; /* parsing moves positionals to the front */
    memcpy(order, arguments, sizeof(char *) * (size_t)n);
    fuzz_went_well(lk_options_parse(lk_train_options, LK_TRAIN_OPTION_COUNT, n, order, &config, &positionals));
    FUZZ_CHECK(positionals >= 0 && positionals <= n);
    check_texts(&config);
    check_parts(&config);
    check_plan(&config);
    for (int i = 0; i < n; i++)
        free(arguments[i]);
    free(text);
    return 0;
}
