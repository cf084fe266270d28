/* Studies: train once for every value of one setting, with one seed or several, and compare how fast or how soon.
 *
 *     lk_study *study = lk_study_new(&config, &(lk_study_opts){.over = "batch-size=8,16,32", .seeds = 3});
 *     lk_study_train(study);
 *     lk_study_write_chart(study, "study.svg");
 *
 * Runs are made one after the other: all values with the first seed, then all with the second, so that a machine that
 * becomes slower or faster meanwhile does so for every value, and a study that is ended early has something of each. */
#ifndef LOCKSTEP_STUDY_H
#define LOCKSTEP_STUDY_H

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_measure {
    LK_MEASURE_THROUGHPUT,      /* lk_train_result.images_per_second, which leaves out the first epoch: a run of one
                                 * is refused */
    LK_MEASURE_TIME_TO_ACCURACY /* seconds of training and evaluation until config->target_accuracy is passed for
                                 * config->patience epochs in a row, which ends the run */
} lk_measure;

enum { LK_STUDY_MAX_VALUES = 100, LK_STUDY_MAX_SEEDS = 1000, LK_STUDY_NOTE = 96 };

/* One training of a study. */
typedef struct lk_study_run {
    int value; /* index into the study's values */
    int64_t seed;
    bool ended;          /* else it is yet to come, or was interrupted, and what follows is not set */
    lk_status status;    /* of building the trainer and training */
    const char *message; /* of the error; NULL: none, or no memory for it */
    int devices;
    int64_t shards, batch_size;
    lk_train_result result; /* as far as training went */
    /* Of time to accuracy: */
    bool reached;
    double seconds_to_accuracy; /* from the beginning to the end of the last epoch that it took; NAN: not reached */
    int64_t epochs_to_accuracy;
} lk_study_run;

/* What the runs of one value came to: runs == counted + not_reached + failed + those that are yet to come. */
typedef struct lk_study_row {
    const char *value; /* owned by the study */
    int runs;
    int counted; /* runs that the mean is over: those that ended well and, of time to accuracy, reached the target */
    int not_reached; /* runs that ended well without */
    int failed;
    double mean; /* images a second, or seconds; NAN: no run counts */
    /* The 95% interval of the mean, by Student's t with counted - 1 degrees of freedom; low == high: there is none. Of
     * few runs that differ much `low` may be below 0, which the measure cannot be. */
    double low, high;
    double epochs;       /* mean over the counted runs, to accuracy; NAN of throughput */
    double val_accuracy; /* mean over the runs that ended well, at their ends; NAN: no evaluation */
    int devices;         /* of the first run that ended; 0: none did */
    int64_t shards;
    char note[LK_STUDY_NOTE]; /* "not reached (2 of 3)", "failed (1 of 3)", "not run (1 of 3)"; "": all counted */
} lk_study_row;

typedef struct lk_study lk_study;

typedef struct lk_study_opts {
    /* NAME=VALUE,VALUE,…: an option of lk_train_options that training depends on, and what it is to be; with values
     * that hold commas themselves NAME=VALUE;VALUE;…. Copied. */
    const char *over;
    lk_measure measure;
    int64_t seeds; /* runs a value: config->seed, config->seed + 1, … */
    /* Called before a run is trained, and may add callbacks; an error fails this run. NULL: nothing. */
    lk_status (*begin)(void *user, const lk_study *study, int run, lk_trainer *trainer);
    /* Called after a run, whether it was trained, failed or was interrupted. NULL: nothing. */
    void (*end)(void *user, const lk_study *study, int run);
    void *user;
} lk_study_opts;

/* Builds a trainer for every value once, so that what does not work shows before the first run. Data "auto" are decided
 * here for all runs; with over "devices" and config->shards 0 all runs have the shards that most devices need. With
 * config->devices NULL all runs have as many devices as the value that gets most, and where config->shards is 0 at
 * least as many shards; only a value whose shards, or samples a batch, are fewer has less, as lk_study_row.devices
 * says. `config`: strings are borrowed for the study's life; for throughput a few epochs and limit_val 0 do. NULL on
 * failure: LK_ERR_ARGUMENT (no such option, one that changes no training, a value that it does not take, a value given
 * twice, more than LK_STUDY_MAX_VALUES; seeds outside 1 … LK_STUDY_MAX_SEEDS; of time to accuracy, no target or no
 * evaluation; of throughput, a single epoch), and what building a trainer gives. */
LK_API lk_study *lk_study_new(const lk_train_config *config, const lk_study_opts *opts);
LK_API void lk_study_release(lk_study *study);

/* Makes all runs that have not ended yet. Blocks. A run that fails is kept as such and does not end the study. Errors:
 * LK_ERR_INTERRUPTED (runs are left, which a second call makes). */
LK_API lk_status lk_study_train(lk_study *study);

/* Ends the run at hand after its step, and the study with it. Async-signal-safe, any thread. */
LK_API void lk_study_interrupt(lk_study *study);

LK_API const char *lk_study_setting(const lk_study *study); /* "batch-size" */
LK_API lk_measure lk_study_get_measure(const lk_study *study);
LK_API bool lk_study_complete(const lk_study *study); /* all runs have ended */
LK_API int lk_study_row_count(const lk_study *study); /* one a value, in the order given */
LK_API lk_study_row lk_study_row_at(const lk_study *study, int index);
LK_API int lk_study_run_count(const lk_study *study);
LK_API const lk_study_run *lk_study_run_at(const lk_study *study, int index);

/* The study as a JSON object, to be freed with lk_free:
 *     {"over":…,"values":[…],"measure":"throughput"|"time-to-accuracy","unit":…,"target":…,"patience":…,"seeds":[…],
 *      "complete":…,"settings":{…},
 *      "rows":[{"value":…,"runs":…,"counted":…,"not_reached":…,"failed":…,"mean":…,"low":…,"high":…,"epochs":…,
 *               "val_accuracy":…,"devices":…,"shards":…,"note":…}],
 *      "runs":[{"value":…,"seed":…,"status":…,"message":…,"devices":…,"shards":…,"batch_size":…,"epochs":…,"steps":…,
 *               "samples_seen":…,"seconds":…,"total_seconds":…,"images_per_second":…,"val_loss":…,"val_accuracy":…,
 *               "reached":…,"seconds_to_accuracy":…,"epochs_to_accuracy":…,"digest":…}]}
 * `settings` holds every option that belongs to what identifies a run, as it came out, without the seed, what is varied
 * and what comes out otherwise for another value: numbers as numbers, flags as true or false, null for what is not set.
 * Null is what was not measured; low and high are null where there is no interval, and low may be below 0, as in
 * lk_study_row. "status" is "ok", "not run" or the error's name. NULL on failure: LK_ERR_MEMORY. */
LK_API char *lk_study_json(const lk_study *study);

/* The same into a file, which is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_study_write_json(const lk_study *study, const char *path);

/* A bar a value, with its interval and note, as lk_bar_chart_write. An interval that goes below 0 is cut there, and the
 * title says so. Errors: as there. */
LK_API lk_status lk_study_write_chart(const lk_study *study, const char *path);

#ifdef __cplusplus
}
#endif

#endif
