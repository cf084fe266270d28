/* Asynchronous training: --strategy parameter-server.
 *
 * Servers hold the variables, each a part of them; workers pull them, compute the gradients of a batch, and push those,
 * each at its own pace; servers apply them with the optimiser as they come. The chief hands out batches, each exactly
 * once an epoch while no worker is lost, evaluates, and writes the records. It is a trainer that lk_trainer_fit trains
 * as any other, with checkpoints too, of what servers have where nothing is under way. Workers may come and go; a
 * server that was lost is started again with the same settings and goes on from its last snapshot.
 *
 * Results depend on who was faster, unless max_staleness is 0: then one batch at a time is shared among the workers,
 * summed up by the tree, and the result is that of every synchronous strategy, bit for bit. */
#ifndef LOCKSTEP_PARAMETER_SERVER_H
#define LOCKSTEP_PARAMETER_SERVER_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- roles ------------------------------------------------------------------------------------------------------- */

typedef enum lk_train_role { LK_TRAIN_ROLE_AUTO, LK_TRAIN_CHIEF, LK_TRAIN_WORKER, LK_TRAIN_PS } lk_train_role;

/* What this process is to be. LK_TRAIN_CHIEF for every other strategy: it trains. Errors: LK_ERR_ARGUMENT (nobody says
 * so, or an option is for another strategy), those of the description of the cluster and of keys, LK_ERR_NOT_FOUND (a
 * host that does not resolve). */
LK_API lk_status lk_train_role_of(const lk_train_config *config, lk_train_role *role);

/* Works for the chief until it says that training has ended; `trainer` is of a configuration whose role is worker.
 * Blocks. result: steps, samples_seen, seconds and total_seconds. Errors: those of operators; LK_ERR_BACKEND (the chief
 * is not there, is lost, or training failed, and why), LK_ERR_ARGUMENT (it trains something else: what differs),
 * LK_ERR_INTERRUPTED. */
LK_API lk_status lk_trainer_work(lk_trainer *trainer, lk_train_result *result);

/* A process that holds a part of the variables. It needs neither model nor data: the chief tells it. */
typedef struct lk_parameter_server lk_parameter_server;

/* Listens, and reads its snapshot if there is one. Errors: LK_ERR_ARGUMENT, LK_ERR_IO (the port is taken),
 * LK_ERR_FORMAT (a damaged snapshot), those of lk_train_role_of. */
LK_API lk_parameter_server *lk_parameter_server_new(const lk_train_config *config);
LK_API void lk_parameter_server_release(lk_parameter_server *server);

/* Serves until the chief says that training has ended. Blocks. Errors: as lk_trainer_work. */
LK_API lk_status lk_parameter_server_run(lk_parameter_server *server);

/* Ends lk_parameter_server_run with LK_ERR_INTERRUPTED. Async-signal-safe. */
LK_API void lk_parameter_server_interrupt(lk_parameter_server *server);

/* --- what happened ----------------------------------------------------------------------------------------------- */

enum { LK_STALENESS_BINS = 64 };

/* Of a whole training, as the chief knows it, and, of the runs that it goes on from, its checkpoint. */
typedef struct lk_async_report {
    int workers_joined, workers_lost; /* lost: silent for peer_timeout; one that comes back is counted again */
    int server_restarts;
    int64_t handed_out, handed_again; /* batches, or nodes of them with max_staleness 0 */
    int64_t repeated_pushes;          /* that a server had applied before; it acknowledged them and left them out */
    int64_t refused_pushes;           /* that had become too stale, or somebody else's: computed anew */
    int64_t updates;                  /* batches that were finished */
    int64_t lost_updates;             /* of those, what servers lost between snapshot and restart, added over servers */
    /* staleness[s]: updates that were s behind on the server where they were most; the last bin: that and more. */
    int64_t staleness[LK_STALENESS_BINS];
    int64_t max_staleness; /* that occurred */
} lk_async_report;

/* Valid as long as the trainer; NULL: it is not a chief of this strategy. Its numbers are of the last epoch_end, or of
 * the end of training. */
LK_API const lk_async_report *lk_trainer_async_report(const lk_trainer *trainer);

/* --- keys -------------------------------------------------------------------------------------------------------- */

/* Makes a pair of keys, writes folder/NAME.key, readable by its owner alone, and adds the public one to folder/allowed.
 * Errors: LK_ERR_ARGUMENT (no name for a file, or it is taken), LK_ERR_IO, LK_ERR_UNSUPPORTED. */
LK_API lk_status lk_make_keys(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif

#endif
