/* Studies: train with every value of one setting, with one seed or several, and compare throughput or time to accuracy.
 *
 *     lk_study *study = lk_study_new(&config, &(lk_study_opts){.over = "batch-size=8,16,32", .seeds = 3});
 *     lk_study_train(study);
 *     lk_study_write_chart(study, "study.svg");
 *
 * Runs are made one after the other: all values with the first seed, then all with the second. So a machine that
 * becomes slower or faster meanwhile affects all values, and a study that ends early has results of each. */
#ifndef LOCKSTEP_STUDY_H
#define LOCKSTEP_STUDY_H

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_measure {
    LK_MEASURE_THROUGHPUT,      /* lk_train_result.images_per_second, without the first epoch; so runs need two */
    LK_MEASURE_TIME_TO_ACCURACY /* seconds of training and evaluation until config->stop.target_accuracy is exceeded for
                                 * config->stop.patience epochs in a row, which ends the run */
} lk_measure;

enum { LK_STUDY_MAX_VALUES = 100, LK_STUDY_MAX_SEEDS = 1000, LK_STUDY_NOTE = 96 };

/* One training of a study. */
typedef struct lk_study_run {
    int value; /* number of its value in the study */
    int64_t seed;
    bool ended;          /* false: not made yet, or interrupted; members below are not set */
    lk_status status;    /* of making the trainer and of training */
    const char *message; /* of the error; NULL: none, or no memory for it */
    int devices;
    int64_t shards, batch_size;
    lk_train_result result; /* as far as training went */
    /* For LK_MEASURE_TIME_TO_ACCURACY: */
    bool reached;               /* the target was exceeded */
    double seconds_to_accuracy; /* from the beginning to the end of the last epoch needed; NAN: not reached */
    int64_t epochs_to_accuracy; /* number of epochs needed */
} lk_study_run;

/* The results of one value. runs is the sum of counted, not_reached, failed and runs that are not made yet. */
typedef struct lk_study_row {
    const char *value; /* owned by the study */
    int runs;
    int counted;     /* runs in the mean: those without an error that, for time to accuracy, reached the target */
    int not_reached; /* runs without an error that did not reach the target */
    int failed;      /* runs with an error */
    double mean;     /* images per second, or seconds; NAN: no run counts */
    /* The 95% interval of the mean, by Student's t with counted - 1 degrees of freedom; low == high: there is none.
     * With few runs that differ much, `low` may be negative although the measure cannot. */
    double low, high;
    double epochs;       /* mean number of epochs to accuracy; NAN: for throughput */
    double val_accuracy; /* mean final accuracy of runs without an error; NAN: no evaluation */
    int devices;         /* of the first run that ended; 0: none has */
    int64_t shards;
    char note[LK_STUDY_NOTE]; /* "not reached (2 of 3)", "failed (1 of 3)", "not run (1 of 3)"; "": all counted */
} lk_study_row;

typedef struct lk_study lk_study;

typedef struct lk_study_opts {
    /* "NAME=VALUE,VALUE,…": an option of lk_train_options that training depends on, and its values; if these contain
     * commas, "NAME=VALUE;VALUE;…". Copied. */
    const char *over;
    lk_measure measure;
    int64_t seeds; /* runs per value, with seeds config->seed, config->seed + 1, … */
    /* Called before a run is trained; it may add callbacks. An error fails this run. NULL: none. */
    lk_status (*begin)(void *user, const lk_study *study, int run, lk_trainer *trainer);
    /* Called after a run, even if it failed or was interrupted. NULL: none. */
    void (*end)(void *user, const lk_study *study, int run);
    void *user;
} lk_study_opts;

/* Makes a trainer for every value once, so that errors show before the first run. Strings of `config` are borrowed for
 * the study's life. For throughput a few epochs and data.limit_val 0 suffice. Settings that must be equal for a fair
 * comparison are decided here, for all runs:
 *   - data "auto" is fashion-mnist, or synthetic, for all.
 *   - If `over` is devices and config->devices.shards is 0, all runs have the shards that the largest set needs.
 *   - If config->devices.spec is NULL, all runs have as many devices as the value that gets most and, if
 *     config->devices.shards is 0, at least as many shards. Only values with fewer shards, or smaller batches, than
 *     that have fewer devices, as lk_study_row.devices says.
 * Checkpoints of `config` are left out; opts->begin can add lk_callback_checkpoint with a folder for each run.
 * NULL on failure. Errors: LK_ERR_ARGUMENT (no such option, or one that does not change training; a value that it does
 * not take or that is given twice; more than LK_STUDY_MAX_VALUES; seeds outside 1 … LK_STUDY_MAX_SEEDS; time to
 * accuracy without a target or an evaluation; throughput with a single epoch), those of lk_trainer_new. */
LK_API lk_study *lk_study_new(const lk_train_config *config, const lk_study_opts *opts);
LK_API void lk_study_release(lk_study *study);

/* Makes all runs that have not ended yet. Blocks. A run that fails is recorded as such, and the others go on. Errors:
 * LK_ERR_INTERRUPTED (runs are left; another call makes them). */
LK_API lk_status lk_study_train(lk_study *study);

/* Ends the current run after its step, and lk_study_train with it. Async-signal-safe, any thread. */
LK_API void lk_study_interrupt(lk_study *study);

/* Texts and runs are valid as long as the study. */
LK_API const char *lk_study_setting(const lk_study *study); /* the option that is varied: "batch-size" */
LK_API lk_measure lk_study_get_measure(const lk_study *study);
LK_API bool lk_study_complete(const lk_study *study); /* all runs have ended */
LK_API int lk_study_row_count(const lk_study *study); /* a row per value, in the order given */
LK_API lk_study_row lk_study_row_at(const lk_study *study, int index);
LK_API int lk_study_run_count(const lk_study *study);
LK_API const lk_study_run *lk_study_run_at(const lk_study *study, int index);

/* Gives the study as a JSON object; free it with lk_free. NULL on failure: LK_ERR_MEMORY.
 *     {"over":…,"values":[…],"measure":"throughput"|"time-to-accuracy","unit":…,"target":…,"patience":…,"seeds":[…],
 *      "complete":…,"settings":{…},
 *      "rows":[{"value":…,"runs":…,"counted":…,"not_reached":…,"failed":…,"mean":…,"low":…,"high":…,"epochs":…,
 *               "val_accuracy":…,"devices":…,"shards":…,"note":…}],
 *      "runs":[{"value":…,"seed":…,"status":…,"message":…,"devices":…,"shards":…,"batch_size":…,"epochs":…,"steps":…,
 *               "samples_seen":…,"seconds":…,"total_seconds":…,"images_per_second":…,"val_loss":…,"val_accuracy":…,
 *               "reached":…,"seconds_to_accuracy":…,"epochs_to_accuracy":…,"digest":…}]}
 * "settings" holds every option that identifies a run, with defaults filled in, except for the seed, the varied option
 * and those that it changes: numbers as numbers, flags as true or false, null for what is not set. Elsewhere null means
 * not measured; low and high are null without an interval, and low may be negative, as in lk_study_row. "status" is
 * "ok", "not run" or the name of the error. */
LK_API char *lk_study_json(const lk_study *study);

/* Writes the same object to a file, which is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (a path that is
 * too long), LK_ERR_MEMORY. */
LK_API lk_status lk_study_write_json(const lk_study *study, const char *path);

/* Draws a bar per value, with its interval and note, with lk_bar_chart_write. Intervals are cut at 0, and the title
 * says so. Errors: those of lk_bar_chart_write. */
LK_API lk_status lk_study_write_chart(const lk_study *study, const char *path);

#ifdef __cplusplus
}
#endif

#endif
