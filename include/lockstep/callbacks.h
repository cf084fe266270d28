/* Callbacks that come with the library. Each stands in a file of its own in src/train/callbacks/ and sees of training
 * only what lk_callback (lockstep/train.h) shows to anybody: examples for callbacks of one's own.
 *
 *     lk_trainer_add(trainer, lk_callback_throughput(stderr));
 *     lk_trainer_add(trainer, lk_callback_log_dir("logs/first"));
 *
 * A constructor that fails (LK_ERR_MEMORY, LK_ERR_ARGUMENT, and what its comment says) gives a callback whose name is
 * NULL; lk_trainer_add gives that error back, so the two nest without a check in between. A callback that is not added
 * is freed with callback.release(callback.self). Texts are copied. Streams are borrowed as long as the callback lives,
 * flushed after every line, and a line that cannot be written is left to ferror().
 *
 * The NaN guard is not among them: it is a part of every step, so that all devices leave out the same one, and
 * lk_train_config.nan_guard switches it. */
#ifndef LOCKSTEP_CALLBACKS_H
#define LOCKSTEP_CALLBACKS_H

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sum / count; NaN where the count is 0: what was not measured. */
LK_API double lk_mean_value(lk_mean mean);

/* --- lines ------------------------------------------------------------------------------------------------------- */

/* `Images/sec: 1234.56` after every epoch: its training images, those of skipped steps too, over its time from
 * beginning to end, evaluation included, as Keras sees an epoch. lk_epoch_report.images_per_second is of training
 * alone. */
LK_API lk_callback lk_callback_throughput(FILE *stream);

/* `Cumulative training time after epoch 3: 12.34` after every epoch and `Cumulative training time: 12.34` at the end:
 * seconds since training began, evaluation included. */
LK_API lk_callback lk_callback_total_time(FILE *stream);

/* How far the epoch has come: steps, loss, images a second and the time that training still takes, or how far its
 * evaluation has. On a terminal with a bar, in place: the line is drawn at most ten times a second, as wide as the
 * terminal, and is taken away when the evaluation, the epoch or training ends: add this before callbacks that print
 * lines to the same terminal. What else prints there clears the line first ("\r\033[K"). On any other stream a line
 * for every minute that training an epoch, or evaluating, takes. */
LK_API lk_callback lk_callback_progress_bar(FILE *stream);

/* --- stopping and the rate --------------------------------------------------------------------------------------- */

/* Ends training after `patience` epochs in a row whose validation accuracy is above `target`; equal is not above, and
 * one epoch that is not begins the count anew. Then prints `Early stopping after epoch 7` at the end; stream NULL:
 * nothing. 0 <= target <= 1, patience >= 0 (a fraction is rounded up; 0 is 1). When training begins: LK_ERR_ARGUMENT
 * where there is no evaluation. */
LK_API lk_callback lk_callback_stop_at_accuracy(double target, double patience, FILE *stream);

/* Ends training after `patience` epochs in a row whose validation loss is not below the best so far by more than
 * `min_delta`, and prints `Early stopping after epoch 7: …` with the best at the end; stream NULL: nothing. A loss that
 * is not a number is not better. patience >= 1, min_delta >= 0. When training begins: LK_ERR_ARGUMENT where there is no
 * evaluation. */
LK_API lk_callback lk_callback_stop_on_plateau(int64_t patience, double min_delta, FILE *stream);

/* The rate for the next update; `epoch` is a fraction from 0: (updates so far) / (updates an epoch), so floor(epoch) is
 * the epoch from 0; without accumulation every step is an update. `rate` is what the schedule, or the callback before,
 * says. Has to be the same function of its arguments in every run and process. */
typedef double (*lk_rate_fn)(void *user, double epoch, double rate);
LK_API lk_callback lk_callback_rate(lk_rate_fn rate, void *user);

/* --- records ----------------------------------------------------------------------------------------------------- */

/* A row an epoch, below a row of names:
 *     epoch,step,train_loss,train_accuracy,train_top_k,val_loss,val_accuracy,val_top_k,rate,seconds,total_seconds,
 *     images_per_second,skipped_steps
 * step counts from the beginning of training; seconds and images_per_second are of training alone. A cell is empty
 * where nothing was measured. When training begins the file is made, or emptied, and the row of names written:
 * LK_ERR_IO. */
LK_API lk_callback lk_callback_csv(const char *path);

typedef struct lk_json_lines_opts {
    /* A first line {"event":"settings", …}: what lk_callback_tensorboard shows as text, here numbers as numbers, flags
     * as true or false, and null for what is not set. Another one where training goes on with other settings
     * (lk_train_config.override): those of what follows. */
    bool settings;
    bool ledger; /* "train_ledger" and "val_ledger" in the lines of epochs */
} lk_json_lines_opts;

/* One JSON object a line, into a file that is made or emptied when training begins, or, for "-", to standard output.
 * After every epoch
 *     {"event":"epoch","epoch":…,"train_loss":…,"train_accuracy":…,"val_loss":…,"val_accuracy":…,"seconds":…,
 *      "images_per_second":…,"steps":…,"rate":…,"total_seconds":…,"skipped_steps":…}
 * with train_top_k and val_top_k where top-k is asked for, and null for what was not measured or is not finite; at the
 * end
 *     {"event":"done","steps":…,"seconds":…,"images_per_second":…,"val_accuracy":…,"digest":…,"state_digest":…,
 *      "devices":[…],"shards":…,"samples_seen":…,"epochs":…,"total_seconds":…,"val_loss":…,"flops_per_second":…,"stopped_by":…,
 *      "dtype":…,"tf32":…,"micro_batch":…,"executor":…,"fuse":…,"algorithms":…,"implementations":…}
 * to which parameter-server adds "asynchronous":{…}, the numbers of lk_async_report, and lk_callback_scaling, where it
 * was added before, adds "scaling":{…}, what lk_scaling_write writes, or, where training ended with an error or was
 * interrupted,
 *     {"event":"stopped","status":…,"message":…,"epochs":…,"steps":…,"samples_seen":…,"seconds":…,"total_seconds":…}
 * to which the epoch that was under way, if one was, adds "partial":{"epoch":…,"step":…,"train_loss":…,
 * "train_accuracy":…}. opts NULL: neither. Errors: LK_ERR_IO. */
LK_API lk_callback lk_callback_json_lines(const char *path, const lk_json_lines_opts *opts);

/* An event file of its own in the folder `dir`, which is made, for every training; `tensorboard --logdir DIR` reads it.
 * After every epoch, which is TensorBoard's step: scalars loss/train, loss/val, accuracy/train, accuracy/val, with
 * top-k top_k/train and top_k/val, learning_rate and images_per_second; histograms weights/NAME of every variable and
 * gradients/NAME of every parameter, the latter of the epoch's last update, and before the others where an interrupt
 * ends training behind it: no checkpoint has them, so add lk_callback_checkpoint later. At the beginning the text
 * `settings`: every option that belongs to what identifies the run, as resolved. Errors when training begins or goes
 * on: LK_ERR_IO. */
LK_API lk_callback lk_callback_tensorboard(const char *dir);

/* Losses, at the left axis from 0, and accuracies, at the right one from 0 to 1, against epochs, drawn anew after every
 * epoch; a path NULL: not that one. Each file is replaced as a whole; there is none before the first number. Errors:
 * LK_ERR_UNSUPPORTED (PNG, in a build without libcairo), LK_ERR_IO. */
LK_API lk_callback lk_callback_curves(const char *svg_path, const char *png_path);

/* The same in characters: on a terminal drawn after every epoch in the place of the last drawing, elsewhere once, at
 * the end. Add it before callbacks that print lines to the same terminal: it takes its drawing away when an epoch ends
 * and draws below what they printed. */
LK_API lk_callback lk_callback_live_plot(FILE *stream);

/* All of the records of a run in the folder `dir`, which is made with those above it: lk_callback_tensorboard,
 * epochs.csv, epochs.jsonl (with settings and ledger), algorithms.txt (lk_trainer_implementations), scaling.json (where
 * lk_callback_scaling was added before), curves.svg and curves.png; a build without libcairo leaves out the PNG and
 * says so once (lockstep/log.h). A folder that holds an earlier run's files keeps them: the next run's are epochs-2.csv
 * and so on, the one after that has 3. TensorBoard takes all event files of a folder for one run: those that are to be
 * compared want folders of their own below one that it is shown. Errors, at once: LK_ERR_IO (the folder can neither be
 * made nor written), LK_ERR_ARGUMENT (an empty name). */
LK_API lk_callback lk_callback_log_dir(const char *dir);

/* Records training from its beginning to its end, interrupted or not, and writes it to `path` then: see lk_trace_start
 * and lk_trace_write. What did not fit is said in a warning (lockstep/log.h). Errors, at once: LK_ERR_IO (the file, in
 * which there is a recording without events until then, cannot be written); when training begins: LK_ERR_STATE
 * (something is being recorded already). */
LK_API lk_callback lk_callback_trace(const char *path);

#ifdef __cplusplus
}
#endif

#endif
