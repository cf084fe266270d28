/* What a person sees while a network trains, on stderr: a plan, a bar that is redrawn on a terminal, a line an epoch.
 */
#ifndef LK_CLI_PROGRESS_H
#define LK_CLI_PROGRESS_H

#include "lockstep/log.h"
#include "lockstep/train.h"

typedef struct cli_progress {
    bool ledger; /* a line about it after every epoch */
    const lk_plan *plan;
    bool announced; /* the plan has been printed */
} cli_progress;

/* Adds callbacks that print the plan before the first epoch, the bar and the epochs' lines. `progress` is borrowed. */
lk_status cli_progress_add(cli_progress *progress, lk_trainer *trainer);

/* The last lines, for a training that ended well. */
void cli_progress_done(const lk_trainer *trainer, const lk_train_result *result);

/* Says that data "auto" turned out to be synthetic. */
void cli_note_fallback(void);

/* "warning: …" for the library's messages; see lk_log_set. */
void cli_print_log(void *user, lk_log_level level, const char *message);

/* The same, once a message: where trainers are made one after another each opens devices and data anew. */
void cli_print_log_once(void *user, lk_log_level level, const char *message);

#endif
