/* Pulls variables from the servers and pushes gradients to them. If a server is lost, the client waits until it is back
 * and sends the request again, which does no harm. */
#pragma once

#include "dist/service/requests.h"
#include "train/parameter_server/ps_layout.h"

/* A directory of the servers, as far as this process knows it. */
typedef struct lk_ps_directory {
    void *user;
    int (*generation)(void *user); /* changes when look_up would give another result; cheap */
    lk_status (*look_up)(void *user, lk_ps_server_location *locations, int *generation); /* [servers] */
    lk_status (*check)(void *user); /* called every few milliseconds of a wait for a server; an error ends it */
} lk_ps_directory;

typedef struct lk_ps_client lk_ps_client;

/* All arguments must outlive the client. */
lk_status lk__ps_client_new(lk_post *post, const lk_ps_layout *layout, uint64_t run, const lk_ps_directory *directory,
                            lk_ps_client **client);
void lk__ps_client_release(lk_ps_client *client); /* NULL is fine */

/* Pulls the variables for batch `batch` into each of n_sets sets. Waits. */
lk_status lk__ps_client_pull(lk_ps_client *client, int64_t batch, lk_tensor *const *const *sets, int n_sets);

/* Pulls the newest variables, and the optimizer's state into state[slot][parameter]. */
lk_status lk__ps_client_pull_all(lk_ps_client *client, lk_tensor *const *const *sets, int n_sets,
                                 lk_tensor *const *const *state, int n_slots);

/* Sends all servers a pull without variables, to measure how long messages take, or (is_timed) to learn how long
 * updates take. Waits. */
lk_status lk__ps_client_pull_nothing(lk_ps_client *client, bool is_timed);

/* The updates that the server had applied at the last pull. */
int64_t lk__ps_client_version(const lk_ps_client *client, int server);

/* The processor time of an update on the server's device, as of the last timed pull; NAN: too few were timed. */
double lk__ps_client_update_seconds(const lk_ps_client *client, int server);

typedef struct lk_ps_push_result {
    int64_t staleness; /* the largest of all servers */
    int repeated;      /* servers that already had this push */
    int too_stale;     /* servers that refused it */
} lk_ps_push_result;

/* Reads gradients and sums of batch-norm, values[0 … parameters + layers), for the next push. *largest:
 * the largest gradient, without its sign; infinite if one is not finite. Waits. */
lk_status lk__ps_client_load(lk_ps_client *client, lk_tensor *const *values, float *largest);

/* Pushes the loaded values, or nothing if is_empty, with the versions of the last pull. Waits. */
lk_status lk__ps_client_push(lk_ps_client *client, const lk_ps_push *push, bool is_empty, lk_ps_push_result *result);
