/* Asynchronous training: strategy parameter-server.
 *
 * Servers hold parts of the variables. Workers pull the variables, compute the gradients of a batch and push them, each
 * at its own pace, and servers apply gradients with the optimizer as they come. The chief hands out batches, each
 * exactly once an epoch as long as no worker is lost, evaluates, and writes records. The chief is an lk_trainer, on
 * which lk_trainer_fit works as usual, checkpoints included: they hold what the servers have when no push is in flight.
 * Workers may come and go. A lost server can be started again with the same settings and goes on from its last
 * snapshot.
 *
 * Results depend on which worker was faster, unless max_staleness is 0: then workers share one batch at a time, the
 * tree sums their gradients, and the result is that of every synchronous strategy, bit for bit.
 *
 *     lk_train_role_of(&config, &role);
 *     chief:   lk_trainer_new(&config), lk_trainer_fit
 *     worker:  lk_trainer_new(&config), lk_trainer_work
 *     server:  lk_parameter_server_new(&config), lk_parameter_server_run */
#ifndef LOCKSTEP_PARAMETER_SERVER_H
#define LOCKSTEP_PARAMETER_SERVER_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- roles -------------------------------------------------------------------------------------------------------- */

typedef enum lk_train_role { LK_TRAIN_ROLE_AUTO, LK_TRAIN_CHIEF, LK_TRAIN_WORKER, LK_TRAIN_PS } lk_train_role;

/* Sets *role to what this process must do; for other strategies to LK_TRAIN_CHIEF, which trains. Errors:
 * LK_ERR_ARGUMENT (neither the settings nor the description of the cluster say; an option is for another strategy),
 * LK_ERR_NOT_FOUND (a host does not resolve), those of reading the description and the keys. */
LK_API lk_status lk_train_role_of(const lk_train_config *config, lk_train_role *role);

/* Works for the chief until the chief says that training has ended. The trainer's configuration must have the role
 * worker. Blocks. Sets steps, samples_seen, seconds and total_seconds of *result. Errors: those of operators;
 * LK_ERR_BACKEND (the chief does not answer or is lost, or training failed, for which the message gives the reason),
 * LK_ERR_ARGUMENT (the chief trains something else; the message says what differs), LK_ERR_INTERRUPTED. */
LK_API lk_status lk_trainer_work(lk_trainer *trainer, lk_train_result *result);

/* A server, which holds a part of the variables. It needs neither model nor data: the chief tells it what to hold. */
typedef struct lk_parameter_server lk_parameter_server;

/* Begins to listen, and reads the server's snapshot if there is one. NULL on failure. Errors: LK_ERR_ARGUMENT,
 * LK_ERR_IO (the port is in use), LK_ERR_FORMAT (a damaged snapshot), those of lk_train_role_of. */
LK_API lk_parameter_server *lk_parameter_server_new(const lk_train_config *config);
LK_API void lk_parameter_server_release(lk_parameter_server *server);

/* Serves until the chief says that training has ended. Blocks. Errors: those of lk_trainer_work. */
LK_API lk_status lk_parameter_server_run(lk_parameter_server *server);

/* Ends lk_parameter_server_run with LK_ERR_INTERRUPTED. Async-signal-safe, any thread. */
LK_API void lk_parameter_server_interrupt(lk_parameter_server *server);

/* The number of files, most of them sockets, that a process that `lockstep launch` starts for such a training opens at
 * most: for lk_check_open_files. */
LK_API int lk_parameter_server_files(int servers, int workers);

/* --- what happened ------------------------------------------------------------------------------------------------ */

enum { LK_STALENESS_BINS = 64 };

/* Describes a whole training, as the chief knows it, including the runs before a checkpoint that it resumed from. */
typedef struct lk_async_report {
    int workers_joined; /* a worker that comes back counts again */
    int workers_lost;   /* workers that were silent for peer_timeout */
    int server_restarts;
    int64_t handed_out;      /* batches, or with max_staleness 0 nodes of batches */
    int64_t handed_again;    /* of these, handed out before to a worker that was lost */
    int64_t repeated_pushes; /* pushes that a server had applied before; it acknowledged them and left them out */
    int64_t refused_pushes;  /* pushes that were too stale, or whose batch had another worker by then; computed again */
    int64_t updates;         /* completed batches */
    int64_t lost_updates;    /* of these, lost by servers between snapshot and restart, summed over servers */
    /* staleness[s]: updates that were s behind, on the server where they were furthest behind; the last bin counts
     * larger ones too. */
    int64_t staleness[LK_STALENESS_BINS];
    int64_t max_staleness; /* the largest that occurred */
} lk_async_report;

/* The report as of the last epoch_end, or of the end of training. Valid as long as the trainer. NULL: it is not a chief
 * of this strategy. */
LK_API const lk_async_report *lk_trainer_async_report(const lk_trainer *trainer);

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Makes a pair of keys, writes it to folder/NAME.key, which only its owner may read, and adds the public key to
 * folder/allowed. Errors: LK_ERR_ARGUMENT (a name that no file can have, or that is taken), LK_ERR_FORMAT
 * (folder/allowed), LK_ERR_IO, LK_ERR_UNSUPPORTED (this build has no encryption). */
LK_API lk_status lk_make_keys(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
