/* Callbacks that come with the library. lk_trainer_fit adds those that its configuration asks for, after the caller's:
 * see lk_stop_config, lk_checkpoint_config and lk_record_config.
 * Each has its own file in src/train/callbacks/ and uses only lk_callback (lockstep/trainer.h), so these files are
 * examples for callbacks of your own.
 *
 * A constructor that fails (LK_ERR_MEMORY, LK_ERR_ARGUMENT, and what its comment says) gives a callback whose name is
 * NULL. lk_trainer_add gives that error, so the calls nest without a check in between. A callback that is not added is
 * freed with callback.release(callback.self). Texts are copied. Streams are borrowed as long as the callback lives;
 * they are flushed after every line, and ferror() tells of lines that could not be written.
 *
 * lk_train_config.checks.nan_guard is no callback but part of every step, so that all devices skip the same updates. */
#ifndef LOCKSTEP_CALLBACKS_H
#define LOCKSTEP_CALLBACKS_H

#include "lockstep/record.h"
#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* Prints `Images/sec: 1234.56` after every epoch: its training images, including those of skipped steps, divided by its
 * whole time with evaluation, as Keras callbacks measure it; lk_epoch_report.images_per_second leaves that out. */
LK_API lk_callback lk_callback_throughput(FILE *stream);

/* Prints `Cumulative training time after epoch 3: 12.34` after every epoch and `Cumulative training time: 12.34` at the
 * end: seconds since training began, with evaluation. */
LK_API lk_callback lk_callback_total_time(FILE *stream);

/* Shows the progress of an epoch (steps, loss, images per second, time left) and of its evaluation. On a terminal it is
 * a bar, redrawn in place at most ten times a second and removed when the epoch, the evaluation or training ends. Add
 * it before callbacks that print lines to the same terminal; anything else that prints there must clear the line first
 * ("\r\033[K"). On other streams, and if $TERM is "dumb" or not set, it is a line for every minute. */
LK_API lk_callback lk_callback_progress_bar(FILE *stream);

/* --- stopping and the rate ---------------------------------------------------------------------------------------- */

/* Ends training after `patience` epochs in a row whose validation accuracy is above `target`; an epoch that is not
 * above, equal included, restarts the count. It then logs the reason (lk_log_set) and prints `Early stopping after
 * epoch 7` to `stream` (NULL: neither) when training ends. 0 <= target <= 1; patience >= 0, rounded up, at least 1.
 * Errors when training begins: LK_ERR_ARGUMENT (no evaluation). Its name is "stop at accuracy". */
LK_API lk_callback lk_callback_stop_at_accuracy(double target, double patience, FILE *stream);

/* Ends training after `patience` epochs in a row whose validation loss was not below the best so far by more than
 * `min_delta`; NaN is never better. It then prints `Early stopping after epoch 7: …`, with the best loss, to `stream`
 * (NULL: nothing) when training ends. patience >= 1, min_delta >= 0. Errors when training begins: LK_ERR_ARGUMENT (no
 * evaluation). */
LK_API lk_callback lk_callback_stop_on_plateau(int64_t patience, double min_delta, FILE *stream);

/* Keeps the variables of the epoch with the smallest validation loss (lk_replicas_keep), in checkpoints too, and takes
 * them back when training ends, unless it ends with that epoch. It then prints `Took back the weights of epoch 5, …` to
 * `stream` (NULL: nothing). lk_train_result.val is then of that epoch. Add it before lk_callback_checkpoint, whose last
 * checkpoint then has these variables. Errors when training begins: LK_ERR_ARGUMENT (no evaluation); later:
 * LK_ERR_MEMORY. */
LK_API lk_callback lk_callback_restore_best(FILE *stream);

/* Multiplies the learning rate, of the schedule or of the callback before, by `factor` whenever `patience` epochs in a
 * row had a validation loss not below the best so far by more than `min_delta`, and then begins to count anew, as
 * Keras' ReduceLROnPlateau without cooldown. patience >= 1, 0 < factor < 1, min_delta >= 0. Errors when training
 * begins: LK_ERR_ARGUMENT (no evaluation). */
LK_API lk_callback lk_callback_rate_on_plateau(int64_t patience, double factor, double min_delta);

/* Gives the learning rate of the next update. epoch: (updates so far) / (updates per epoch), a fraction from 0; without
 * accumulation every step is an update. rate: that of the schedule, or of the callback before. It must be the same
 * function of its arguments in every run and process. */
typedef double (*lk_rate_fn)(void *user, double epoch, double rate);

/* Lets `rate` decide the learning rate. */
LK_API lk_callback lk_callback_rate(lk_rate_fn rate, void *user);

/* --- records ------------------------------------------------------------------------------------------------------ */

/* Writes CSV: a row of names, then a row per epoch:
 *     epoch,step,train_loss,train_accuracy,train_top_k,val_loss,val_accuracy,val_top_k,rate,seconds,total_seconds,
 *     images_per_second,skipped_steps
 * step counts from the beginning of training; seconds and images_per_second are without evaluation. A cell is empty if
 * nothing was measured. The file is made, or emptied, when training begins. Errors then: LK_ERR_IO. */
LK_API lk_callback lk_callback_csv(const char *path);

/* Writes losses, accuracies and rates by step, as CSV with a row of names, or as JSON lines:
 *     step,epoch,train_loss,train_accuracy,rate,skipped_steps
 * The first 1,023 steps have a row each. From then on each doubling of the number of steps adds 512 rows, and values
 * are means over the steps since the row before, without skipped ones: a million steps make 6,097 rows. With
 * accumulation, steps with finite losses count if only a later step shows that their update is skipped. The last row
 * holds what is left when training ends. Which steps have a row depends on their numbers alone, so a resumed training
 * has the rows of one that was not interrupted. step counts from the beginning of training; epoch is a fraction, 1.5 in
 * the middle of the second. Errors when training begins: LK_ERR_IO. */
LK_API lk_callback lk_callback_steps(const char *path, lk_row_format format);

typedef struct lk_json_lines_opts {
    /* Write a first line {"event":"settings", …} with the settings that lk_callback_tensorboard shows as text: numbers
     * as numbers, flags as true or false, and null for what is not set. A training that resumes writes another such
     * line, which holds from there on: its epochs, devices and, with lk_train_config.checkpoints.override, other
     * settings may differ. */
    bool settings;
    bool ledger; /* add "train_ledger" and "val_ledger" to the lines of epochs */
} lk_json_lines_opts;

/* Writes one JSON object per line to a file, which is made or emptied when training begins, or, for "-", to standard
 * output. opts NULL: zeroes. Errors: LK_ERR_IO. After every epoch:
 *     {"event":"epoch","epoch":…,"train_loss":…,"train_accuracy":…,"val_loss":…,"val_accuracy":…,"seconds":…,
 *      "images_per_second":…,"steps":…,"rate":…,"total_seconds":…,"skipped_steps":…}
 * with train_top_k and val_top_k if top-k is asked for, and null for what was not measured or is not finite. At the
 * end:
 *     {"event":"done","steps":…,"seconds":…,"images_per_second":…,"val_accuracy":…,"digest":…,"state_digest":…,
 *      "devices":[…],"shards":…,"samples_seen":…,"epochs":…,"total_seconds":…,"val_loss":…,"flops_per_second":…,"stopped_by":…,
 *      "dtype":…,"tf32":…,"micro_batch":…,"executor":…,"fuse":…,"algorithms":…,"implementations":…,"transport":…,"reduce":…}
 * Strategy parameter-server adds "asynchronous":{…}, the numbers of lk_async_report. lk_callback_scaling, if it was
 * added before, adds "scaling":{…}, the object of lk_scaling_write. If training ended with an error or was interrupted,
 * the last line is instead:
 *     {"event":"stopped","status":…,"message":…,"epochs":…,"steps":…,"samples_seen":…,"seconds":…,"total_seconds":…}
 * with "partial":{"epoch":…,"step":…,"train_loss":…,"train_accuracy":…} if it ended in the middle of an epoch. */
LK_API lk_callback lk_callback_json_lines(const char *path, const lk_json_lines_opts *opts);

/* Writes an event file for TensorBoard, a new one for every training, in the folder `dir`, which is made if it is
 * missing; `tensorboard --logdir DIR` shows it. When training begins it writes the text `settings`: every option that
 * identifies the run, with defaults filled in. After every epoch, which is TensorBoard's step, it writes
 *   scalars     loss/train, loss/val, accuracy/train, accuracy/val, top_k/train and top_k/val if asked for,
 *               learning_rate, images_per_second
 *   histograms  weights/NAME of every variable, gradients/NAME of every parameter in the epoch's last update
 * For the steps that lk_callback_steps has rows for, it writes the scalars steps/loss, steps/accuracy and
 * steps/rate, whose step is the training's. Gradients are not part of checkpoints. If an interrupt ends
 * training right after an epoch's last update, their histograms are written before the checkpoint; so add
 * lk_callback_checkpoint after this one. Errors when training begins or resumes: LK_ERR_IO. */
LK_API lk_callback lk_callback_tensorboard(const char *dir);

/* Draws losses (from 0) and accuracies (from 0 to 1) next to each other, after every epoch: those of training by step,
 * thinned as lk_callback_steps but to fewer points, those of the evaluation by epoch. A NULL
 * path leaves that file out. Files are replaced as a whole; there is none before the first number. Errors:
 * LK_ERR_UNSUPPORTED (PNG, in a build without libcairo), LK_ERR_IO. */
LK_API lk_callback lk_callback_curves(const char *svg_path, const char *png_path);

/* Draws losses and accuracies by epoch in characters, in one chart: on a terminal after every epoch, replacing the last
 * drawing; on other streams once, at the end. Add it before callbacks that print lines to the same terminal: it removes
 * its drawing when an epoch ends, and draws again below their lines. */
LK_API lk_callback lk_callback_live_plot(FILE *stream);

/* Writes all records of a run to the folder `dir`, which is made with its parents: the event file of
 * lk_callback_tensorboard, epochs.csv, epochs.jsonl (with settings and ledger), steps.csv, steps.jsonl, algorithms.txt
 * (the tuning of lk_trainer_implementations), scaling.json (if lk_callback_scaling was added before), curves.svg and
 * curves.png. A build without libcairo leaves out the PNG and logs that once. An earlier run's files are kept: the next
 * run writes epochs-2.csv and so on, the one after it epochs-3.csv. TensorBoard takes all event files in a folder for
 * one run, so runs that it is to compare need folders of their own below the one that it is given. Errors of the
 * constructor: LK_ERR_IO (the folder cannot be made or written), LK_ERR_ARGUMENT (an empty name). */
LK_API lk_callback lk_callback_log_dir(const char *dir);

/* Records training from beginning to end, interrupted or not, and then writes the recording to `path`: see
 * lk_trace_start and lk_trace_write. Until then the file holds a recording without events. A warning tells of events
 * that did not fit. Errors of the constructor: LK_ERR_IO (the file cannot be written). Errors when training begins:
 * LK_ERR_STATE (something is being recorded already). */
LK_API lk_callback lk_callback_trace(const char *path);

#ifdef __cplusplus
}
#endif

#endif
