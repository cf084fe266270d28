/* Pulling variables from the servers, and pushing gradients to them. A server that was lost is waited for: when it is
 * back the request is sent again, which does no harm. */
#ifndef LK_TRAIN_PS_CLIENT_H
#define LK_TRAIN_PS_CLIENT_H

#include "dist/requests.h"
#include "train/ps_layout.h"

/* Where servers are, as far as somebody knows. */
typedef struct ps_directory {
    void *user;
    int (*generation)(void *user); /* changes with what look_up gives; cheap */
    lk_status (*look_up)(void *user, ps_server_place *places, int *generation); /* places[servers] */
    lk_status (*check)(void *user); /* an error ends the waiting for a server; called every few milliseconds */
} ps_directory;

typedef struct ps_client ps_client;

/* Keeps all of them. */
lk_status lk__ps_client_new(lk_post *post, const ps_layout *layout, uint64_t run, const ps_directory *directory,
                            ps_client **client);
void lk__ps_client_release(ps_client *client); /* NULL is fine */

/* The variables into every one of n_sets sets. Waits. */
lk_status lk__ps_client_pull(ps_client *client, lk_tensor *const *const *sets, int n_sets);

/* The same, and all that the optimiser remembers into state[slot][parameter]. */
lk_status lk__ps_client_pull_all(ps_client *client, lk_tensor *const *const *sets, int n_sets,
                                 lk_tensor *const *const *state, int n_slots);

/* Asks all servers for no variables, which takes as long as messages do; or, is_timed, for what updates take. Waits. */
lk_status lk__ps_client_pull_nothing(ps_client *client, bool is_timed);

/* Updates that server s had applied when it was pulled from last. */
int64_t lk__ps_client_version(const ps_client *client, int server);

/* What its device takes for an update, in processor time, when it was last asked; NAN: too few were timed. */
double lk__ps_client_update_seconds(const ps_client *client, int server);

typedef struct ps_push_result {
    int64_t staleness; /* most of all servers */
    int repeated;      /* servers that had it before */
    int too_stale;     /* servers that refused it */
} ps_push_result;

/* Reads gradients and sums of batch-norm, values[0 … parameters + layers), for the push that comes next. finite:
 * whether all of them are. Waits. */
lk_status lk__ps_client_load(ps_client *client, lk_tensor *const *values, bool *finite);

/* Pushes what was loaded, or nothing where it `is_empty`, with the versions of the last pull. Waits. */
lk_status lk__ps_client_push(ps_client *client, const ps_push *push, bool is_empty, ps_push_result *result);

#endif
