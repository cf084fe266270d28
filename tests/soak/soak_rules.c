#include "soak_rules.h"

#include "cli/cli.h"
#include "lockstep/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef bool soak_draw_fn(soak_context *context, char text[SOAK_VALUE_BYTES]);
typedef bool soak_allow_fn(const soak_context *context);

typedef struct soak_rule {
    const char *name;
    soak_draw_fn *draw;   /* NULL: by type and range */
    soak_allow_fn *allow; /* NULL: always */
    double low, high;     /* of a number, in place of its row's; two zeros: of the row */
    double chance;        /* that it is given; 0: the usual one */
    bool is_for_all, is_placed, is_of_launch;
} soak_rule;

/* --- when an option has a meaning ----------------------------------------------------------------------------------
 */

static const char *rules_value(const soak_context *context, const char *name)
{
    const char *value = soak_settings_value(&context->drawn->settings, name);
    return value ? value : "";
}

static bool rules_is(const soak_context *context, const char *name, const char *value)
{
    return strcmp(rules_value(context, name), value) == 0;
}

static bool rules_is_not_compressed(const soak_context *context)
{
    return !rules_is(context, "compress", "bf16");
}

static bool rules_has_csv(const soak_context *context)
{
    return rules_is(context, "data", "../inputs/csv");
}

static bool rules_has_named_data(const soak_context *context)
{
    return rules_is(context, "data", "fashion-mnist") || rules_is(context, "data", "auto");
}

static bool rules_has_evaluation(const soak_context *context)
{
    return !rules_is(context, "limit-val", "0");
}

static bool rules_has_momentum(const soak_context *context)
{
    return rules_is(context, "optimizer", "sgd") || rules_is(context, "optimizer", "lars");
}

static bool rules_has_nesterov(const soak_context *context)
{
    return rules_is(context, "optimizer", "sgd") && atof(rules_value(context, "momentum")) > 0;
}

static bool rules_has_groups(const soak_context *context)
{
    return rules_is(context, "bn", "group");
}

static bool rules_has_steps(const soak_context *context)
{
    return rules_is(context, "schedule", "step");
}

static bool rules_has_cosine(const soak_context *context)
{
    return rules_is(context, "schedule", "cosine");
}

static bool rules_has_target(const soak_context *context)
{
    return soak_settings_value(&context->drawn->settings, "target-accuracy") != NULL;
}

static bool rules_has_pieces(const soak_context *context)
{
    return !context->drawn->has_batch_norm;
}

static bool rules_has_program(const soak_context *context)
{
    return !rules_is(context, "executor", "eager");
}

static bool rules_has_servers(const soak_context *context)
{
    return soak_attempt_has_servers(context->attempt);
}

/* --- texts ---------------------------------------------------------------------------------------------------------
 */

static bool rules_word(soak_context *context, char text[SOAK_VALUE_BYTES], const char *const *words)
{
    snprintf(text, SOAK_VALUE_BYTES, "%s", soak_random_word(context->random, words));
    return true;
}

static bool rules_draw_recipe(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    int count = 0;
    while (lk_recipe_at(count))
        count++;
    snprintf(text, SOAK_VALUE_BYTES, "%s", lk_recipe_at((int)soak_random_int(context->random, 0, count - 1))->name);
    return true;
}

static bool rules_has_gpu(const soak_context *context)
{
    return strncmp(context->drawn->device_kind, "cuda", 4) == 0;
}

/* Emulated GPUs take seconds for a few images, plain kernels and large networks too. */
static bool rules_is_slow(const soak_context *context)
{
    return strcmp(context->drawn->device_kind, "cpu") != 0 || rules_is(context, "model", "resnet18") ||
           rules_is(context, "model", "wrn-16-10");
}

static bool rules_draw_model(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    soak_case *drawn = context->drawn;
    bool is_slow = rules_is_slow(context);
    if (!is_slow && soak_random_chance(context->random, 0.02))
        rules_word(context, text, (const char *const[]){"resnet18", "wrn-16-10", NULL});
    else if (!rules_has_gpu(context) && soak_random_chance(context->random, 0.4))
        rules_word(context, text, (const char *const[]){"lenet", "keras-cnn", NULL});
    else
        snprintf(text, SOAK_VALUE_BYTES, "../inputs/net.lk");
    bool is_file = strchr(text, '/') != NULL;
    drawn->has_batch_norm = is_file ? soak_random_chance(context->random, 0.6) : strchr("rw", *text) != NULL;
    return true;
}

static bool rules_draw_data(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    if (soak_random_chance(context->random, 0.5))
        return rules_word(context, text, (const char *const[]){"synthetic", NULL});
    return rules_word(context, text,
                      (const char *const[]){"../inputs/csv", "../inputs/idx", "../inputs/pictures", "../inputs/cifar",
                                            "fashion-mnist", "auto", NULL});
}

static bool rules_draw_data_dir(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"../inputs/named", NULL});
}

static bool rules_draw_resize(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    snprintf(text, SOAK_VALUE_BYTES, "%dx%d", (int)soak_random_int(context->random, 20, 34),
             (int)soak_random_int(context->random, 20, 34));
    return true;
}

static bool rules_draw_channels(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"1", "3", NULL});
}

static bool rules_draw_image_shape(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"1x24x24", "24x24", NULL});
}

static bool rules_draw_label_column(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"label", NULL});
}

static bool rules_draw_data_cache(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"none", "cache", NULL});
}

static bool rules_draw_algorithms(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    if (strcmp(context->drawn->device_kind, "cpu") != 0)
        return rules_word(context, text, (const char *const[]){"fast", NULL});
    return rules_word(context, text,
                      (const char *const[]){"fast", "direct", "../inputs/before/log/algorithms.txt", NULL});
}

static bool rules_draw_optimizer(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"sgd", "adam", "adamw", "lars", NULL});
}

static bool rules_draw_schedule(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"constant", "step", "cosine", NULL});
}

static bool rules_draw_lr_steps(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"1:0.1", "0.5:0.3,2:0.1", "1:2,1.5:0.5,3:0.1", NULL});
}

static bool rules_draw_lr_plateau(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"1:0.5", "2:0.1", NULL});
}

static bool rules_draw_class_weights(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"balanced", "0:2.5,1:0.3", "1:0", NULL});
}

static bool rules_draw_augment(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    static const char *const words[] = {"shift=0.2", "flip",      "crop=2",         "cutout=6",
                                        "vflip",     "rotate=20", "brightness=0.3", "contrast=0.5",
                                        "rand=9",    "erase=0.5", "mixup=0.4"};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (soak_random_chance(context->random, 0.3))
            snprintf(text + strlen(text), SOAK_VALUE_BYTES - strlen(text), "%s%s", *text ? "," : "", words[i]);
    return *text != '\0';
}

static bool rules_draw_weights(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"../inputs/before/weights.safetensors", NULL});
}

static bool rules_has_weights(const soak_context *context)
{
    return rules_is(context, "weights", "../inputs/before/weights.safetensors");
}

/* Every network has biases, and something else. */
static bool rules_draw_patterns(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"*.bias", "*.b?as,*.bias", NULL});
}

static bool rules_draw_checkpoint_every(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    if (soak_random_chance(context->random, 0.2))
        return rules_word(context, text, (const char *const[]){"epoch", "0.001m", "5m", NULL});
    snprintf(text, SOAK_VALUE_BYTES, "%d", (int)soak_random_int(context->random, 1, 9));
    return true;
}

static bool rules_draw_checkpoint_best(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    if (rules_has_evaluation(context) && soak_random_chance(context->random, 0.5))
        return rules_word(context, text, (const char *const[]){"val-accuracy", "val-loss", NULL});
    return rules_word(context, text, (const char *const[]){"auto", "train-accuracy", "train-loss", "none", NULL});
}

static bool rules_draw_log_dir(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"disk/log", NULL});
}

static bool rules_draw_rank_logs(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"ranks", NULL});
}

static bool rules_draw_trace(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"trace.json", NULL});
}

static bool rules_draw_snapshots(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"snapshots", NULL});
}

static bool rules_draw_min_lr(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    snprintf(text, SOAK_VALUE_BYTES, "%.3g",
             atof(rules_value(context, "base-lr")) * soak_random_real(context->random, 0, 0.5));
    return true;
}

static bool rules_draw_shards(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    static const char *const usual[] = {"1", "2", "3", "4", "6", "8", "8", "12", NULL};
    return rules_word(context, text, usual);
}

static bool rules_draw_limit_train(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    snprintf(text, SOAK_VALUE_BYTES, "%d",
             (int)soak_random_int(context->random, 20, rules_is_slow(context) ? 40 : 300));
    return true;
}

static bool rules_draw_epochs(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    snprintf(text, SOAK_VALUE_BYTES, "%d", (int)soak_random_int(context->random, 1, rules_is_slow(context) ? 2 : 4));
    return true;
}

static bool rules_draw_bn(soak_context *context, char text[SOAK_VALUE_BYTES])
{
    return rules_word(context, text, (const char *const[]){"shard", "sync", "group", NULL});
}

/* --- the table -----------------------------------------------------------------------------------------------------
 */

/* clang-format off: a rule a line */
static const soak_rule rules[] = {
    {.name = "recipe", .draw = rules_draw_recipe, .chance = 0.1},
    {.name = "model", .draw = rules_draw_model, .chance = 1},
    {.name = "data", .draw = rules_draw_data, .chance = 1},
    {.name = "data-dir", .draw = rules_draw_data_dir, .allow = rules_has_named_data, .chance = 1, .is_for_all = true},
    {.name = "resize", .draw = rules_draw_resize},
    {.name = "channels", .draw = rules_draw_channels},
    {.name = "val-split", .low = 0, .high = 0.4},
    {.name = "image-shape", .draw = rules_draw_image_shape, .allow = rules_has_csv, .chance = 0.7},
    {.name = "label-column", .draw = rules_draw_label_column, .allow = rules_has_csv, .chance = 0.5},
    {.name = "data-cache", .draw = rules_draw_data_cache},
    {.name = "devices", .is_placed = true},
    {.name = "strategy", .is_placed = true},
    {.name = "pjrt", .is_placed = true},
    {.name = "storage", .is_placed = true},
    {.name = "optimizer-state", .is_placed = true},
    {.name = "cluster", .is_placed = true},
    {.name = "role", .is_placed = true},
    {.name = "task-index", .is_placed = true},
    {.name = "servers", .is_placed = true},
    {.name = "coordinator", .is_placed = true},
    {.name = "listen", .is_placed = true},
    {.name = "max-staleness", .is_placed = true},
    {.name = "keys", .is_placed = true},
    {.name = "checkpoint-dir", .is_placed = true},
    {.name = "resume", .is_placed = true},
    {.name = "override", .is_placed = true},
    {.name = "snapshot-dir", .draw = rules_draw_snapshots, .allow = rules_has_servers, .chance = 0.3},
    {.name = "snapshot-every", .allow = rules_has_servers, .low = 1, .high = 5},
    {.name = "peer-timeout", .allow = rules_has_servers, .low = 8, .high = 12, .chance = 0.5},
    {.name = "join-timeout", .allow = rules_has_servers, .low = 60, .high = 100, .chance = 1},
    {.name = "compress", .is_placed = true},
    {.name = "exchange", .allow = rules_is_not_compressed},
    {.name = "reduce", .is_placed = true},
    {.name = "tf32", .allow = rules_has_gpu},
    {.name = "shards", .draw = rules_draw_shards, .chance = 1},
    {.name = "algorithms", .draw = rules_draw_algorithms},
    {.name = "recompute", .allow = rules_has_program},
    {.name = "bucket-mb", .allow = rules_is_not_compressed, .low = 0, .high = 0.2},
    {.name = "micro-batch", .allow = rules_has_pieces, .low = 0, .high = 9},
    {.name = "epochs", .draw = rules_draw_epochs, .chance = 1},
    {.name = "batch-size", .low = 12, .high = 60, .chance = 1},
    {.name = "val-batch-size", .low = 12, .high = 64},
    {.name = "accumulate", .low = 1, .high = 4},
    {.name = "limit-train", .draw = rules_draw_limit_train, .chance = 1},
    {.name = "limit-val", .low = 0, .high = 60, .chance = 1},
    {.name = "workers", .low = 0, .high = 3},
    {.name = "optimizer", .draw = rules_draw_optimizer, .chance = 0.8},
    {.name = "base-lr", .low = 0.001, .high = 0.04, .chance = 1},
    {.name = "momentum", .allow = rules_has_momentum, .low = 0, .high = 0.95, .chance = 0.7},
    {.name = "nesterov", .allow = rules_has_nesterov, .chance = 0.4},
    {.name = "wd", .low = 0, .high = 0.01},
    {.name = "clip-norm", .low = 0, .high = 2},
    {.name = "schedule", .draw = rules_draw_schedule, .chance = 0.5},
    {.name = "lr-steps", .draw = rules_draw_lr_steps, .allow = rules_has_steps, .chance = 1},
    {.name = "min-lr", .draw = rules_draw_min_lr, .allow = rules_has_cosine, .chance = 0.5},
    {.name = "lr-plateau", .draw = rules_draw_lr_plateau, .allow = rules_has_evaluation},
    {.name = "ema", .low = 0.5, .high = 0.99},
    {.name = "class-weights", .draw = rules_draw_class_weights},
    {.name = "restore-best", .allow = rules_has_evaluation},
    {.name = "warmup-epochs", .low = 0, .high = 3},
    {.name = "label-smoothing", .low = 0, .high = 0.4},
    {.name = "top-k", .low = 0, .high = 4},
    {.name = "bn", .draw = rules_draw_bn},
    {.name = "bn-group", .allow = rules_has_groups, .low = 1, .high = 24},
    {.name = "precise-bn", .low = 0, .high = 3},
    {.name = "augment", .draw = rules_draw_augment, .chance = 0.4},
    {.name = "target-accuracy", .allow = rules_has_evaluation, .low = 0, .high = 0.4},
    {.name = "patience", .allow = rules_has_target, .low = 0, .high = 3},
    {.name = "early-stop", .allow = rules_has_evaluation, .low = 0, .high = 2},
    {.name = "audit-every", .low = 0, .high = 6},
    {.name = "log-dir", .draw = rules_draw_log_dir, .chance = 0.5},
    {.name = "checkpoint-every", .draw = rules_draw_checkpoint_every, .chance = 0.8},
    {.name = "checkpoint-best", .draw = rules_draw_checkpoint_best},
    {.name = "weights", .draw = rules_draw_weights},
    {.name = "weights-skip", .draw = rules_draw_patterns, .allow = rules_has_weights, .chance = 0.4},
    {.name = "freeze", .draw = rules_draw_patterns},
    {.name = "trace", .draw = rules_draw_trace, .chance = 0.1},
    {.name = "processes", .is_of_launch = true, .is_placed = true},
    {.name = "hosts", .is_of_launch = true, .is_placed = true},
    {.name = "interfaces", .is_of_launch = true, .is_placed = true},
    {.name = "workers", .is_of_launch = true, .is_placed = true},
    {.name = "servers", .is_of_launch = true, .is_placed = true},
    {.name = "max-restarts", .is_of_launch = true, .is_placed = true},
    {.name = "elastic", .is_of_launch = true, .is_placed = true},
    {.name = "min-ranks", .is_of_launch = true, .is_placed = true},
    {.name = "hosts-file", .is_of_launch = true, .is_placed = true},
    {.name = "stall-timeout", .is_of_launch = true, .low = 20, .high = 60},
    {.name = "log-dir", .is_of_launch = true, .draw = rules_draw_rank_logs},
};
/* clang-format on */

enum { RULE_COUNT = sizeof rules / sizeof rules[0] };

static const soak_rule *rules_find(const char *name, bool is_launch)
{
    static const soak_rule none = {.name = ""};
    for (int i = 0; i < RULE_COUNT; i++)
        if (rules[i].is_of_launch == is_launch && strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return &none;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

static void rules_add_rows(soak_row *rows, int *count, const lk_option *options, size_t n, bool is_launch)
{
    for (size_t i = 0; i < n; i++) {
        const soak_rule *rule = rules_find(options[i].name, is_launch);
        rows[(*count)++] = (soak_row){.option = &options[i],
                                      .is_launch = is_launch,
                                      .is_for_all = options[i].recorded || rule->is_for_all,
                                      .is_placed = rule->is_placed};
    }
}

const soak_row *soak_rows(int *count)
{
    static lk_option train[CLI_MAX_OPTIONS], launch[CLI_MAX_OPTIONS];
    static soak_row rows[2 * CLI_MAX_OPTIONS];
    static int n;
    if (n == 0) {
        size_t of_train, of_launch;
        const lk_option *options = cli_options_of(&cmd_train, train, &of_train);
        rules_add_rows(rows, &n, options, of_train, false);
        options = cli_options_of(&cmd_launch, launch, &of_launch);
        rules_add_rows(rows, &n, options, of_launch, true);
    }
    *count = n;
    return rows;
}

static const soak_row *rules_find_row(const char *name, bool is_launch)
{
    int count;
    const soak_row *rows = soak_rows(&count);
    for (int i = 0; i < count; i++)
        if (rows[i].is_launch == is_launch && strcmp(rows[i].option->name, name) == 0)
            return &rows[i];
    return NULL;
}

const soak_row *soak_row_of(const char *name, bool is_launch)
{
    const soak_row *row = rules_find_row(name, is_launch);
    if (!row) {
        fprintf(stderr, "soak: --%s is in no option table\n", name);
        exit(1);
    }
    return row;
}

static void rules_draw_by_type(const lk_option *option, const soak_rule *rule, soak_random *random,
                               char text[SOAK_VALUE_BYTES])
{
    bool has_range = rule->low < rule->high;
    if (option->type == LK_OPTION_FLAG) {
        snprintf(text, SOAK_VALUE_BYTES, "%s", soak_random_chance(random, 0.8) ? "true" : "false");
    } else if (option->type == LK_OPTION_CHOICE) {
        snprintf(text, SOAK_VALUE_BYTES, "%s", soak_random_word(random, option->choices));
    } else if (option->type == LK_OPTION_INT64) {
        int64_t low = has_range ? (int64_t)rule->low : option->minimum;
        int64_t high = has_range ? (int64_t)rule->high : option->minimum + 8;
        if (!has_range && option->minimum < option->maximum && high > option->maximum)
            high = option->maximum;
        snprintf(text, SOAK_VALUE_BYTES, "%lld", (long long)soak_random_int(random, low, high));
    } else {
        double low = has_range ? rule->low : option->least;
        double high = has_range ? rule->high : option->least + 1;
        if (!has_range && option->least < option->greatest)
            high = fmin(high, option->greatest);
        snprintf(text, SOAK_VALUE_BYTES, "%.4g", soak_random_real(random, low, high));
    }
}

bool soak_row_draw(const soak_row *row, soak_context *context, bool forced, char text[SOAK_VALUE_BYTES])
{
    const soak_rule *rule = rules_find(row->option->name, row->is_launch);
    bool given = soak_random_chance(context->random, rule->chance > 0 ? rule->chance : 0.12);
    if (row->is_placed || !(given || forced) || (rule->allow && !rule->allow(context)))
        return false;
    if (rule->draw)
        return rule->draw(context, text);
    rules_draw_by_type(row->option, rule, context->random, text);
    return true;
}

bool soak_row_is_needed(const soak_row *row)
{
    const soak_rule *rule = rules_find(row->option->name, row->is_launch);
    const char *name = row->option->name;
    bool is_extra =
        strcmp(name, "strategy") == 0 || strcmp(name, "storage") == 0 || strcmp(name, "optimizer-state") == 0;
    return (row->is_placed && !is_extra) || (rule->chance >= 1 && !rule->allow);
}

const char *soak_rows_gap(void)
{
    int count;
    const soak_row *rows = soak_rows(&count);
    for (int i = 0; i < count; i++) {
        const lk_option *option = rows[i].option;
        const soak_rule *rule = rules_find(option->name, rows[i].is_launch);
        if (option->type == LK_OPTION_STRING && !rule->draw && !rule->is_placed)
            return option->name;
    }
    for (int i = 0; i < RULE_COUNT; i++)
        if (!rules_find_row(rules[i].name, rules[i].is_of_launch))
            return rules[i].name;
    return NULL;
}
