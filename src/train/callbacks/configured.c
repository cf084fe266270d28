#include "train/callbacks/configured.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "base/status.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

static bool configured_is_named(const char *path)
{
    return path && *path;
}

/* The plot comes first of all: it is removed when an epoch ends, before other callbacks print their lines. */
static lk_status configured_add_plot(lk_callbacks *callbacks)
{
    LK_TRY(lk__callbacks_add(callbacks, lk_callback_live_plot(stderr)));
    lk_callback plot = callbacks->list[callbacks->n - 1];
    for (int i = callbacks->n - 1; i > 0; i--)
        callbacks->list[i] = callbacks->list[i - 1];
    callbacks->list[0] = plot;
    return LK_OK;
}

/* Only the first of several processes writes and prints. */
static lk_status configured_add_records(lk_callbacks *callbacks, const lk_record_config *config, FILE *lines)
{
    lk_json_lines_opts json = {.ledger = config->ledger};
    if (config->plot)
        LK_TRY(configured_add_plot(callbacks));
    if (config->json)
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_json_lines("-", &json)));
    if (configured_is_named(config->log_dir))
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_log_dir(config->log_dir)));
    return config->throughput ? lk__callbacks_add(callbacks, lk_callback_throughput(lines)) : LK_OK;
}

static lk_status configured_add_checkpoints(lk_callbacks *callbacks, const lk_checkpoint_config *config)
{
    const char *memory = getenv(LK_MEMORY_VARIABLE);
    if (configured_is_named(config->dir)) {
        lk_checkpoint_opts opts = {.keep = config->keep, .best = (lk_best_metric)config->best};
        LK_TRY(lk_checkpoint_parse_every(config->every, &opts));
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_checkpoint(config->dir, &opts)));
    }
    return configured_is_named(memory) ? lk__callbacks_add(callbacks, lk_callback_memory_checkpoints(memory)) : LK_OK;
}

lk_status lk__callbacks_add_configured(lk_trainer *trainer)
{
    lk_callbacks *callbacks = &trainer->callbacks;
    const lk_train_config *config = &trainer->config;
    bool is_first = trainer->plan.process == 0;
    FILE *lines = config->records.json ? stderr : stdout, *reason = is_first ? config->stop.stream : NULL;
    if (is_first)
        LK_TRY(configured_add_records(callbacks, &config->records, lines));
    if (config->stop.target_accuracy >= 0)
        LK_TRY(lk__callbacks_add(
            callbacks, lk_callback_stop_at_accuracy(config->stop.target_accuracy, trainer->plan.patience, reason)));
    if (config->stop.early_stop > 0)
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_stop_on_plateau(config->stop.early_stop, 0, reason)));
    if (trainer->plan.plateau_epochs > 0)
        LK_TRY(lk__callbacks_add(
            callbacks, lk_callback_rate_on_plateau(trainer->plan.plateau_epochs, trainer->plan.plateau_factor, 0)));
    if (config->stop.restore_best)
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_restore_best(reason)));
    if (is_first && config->records.total_time)
        LK_TRY(lk__callbacks_add(callbacks, lk_callback_total_time(lines)));
    return configured_add_checkpoints(callbacks, &config->checkpoints);
}
