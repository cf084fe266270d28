/* The coordinator's data, guarded by its mutex, and the parts of its thread: ps_coordinator.c keeps time, ps_members.c
 * tracks members, ps_registry.c tracks servers, ps_work.c hands out batches. */
#pragma once

#include "base/status.h"
#include "train/parameter_server/handouts.h"
#include "train/parameter_server/ps_coordinator.h"

#include <pthread.h>
#include <stdatomic.h>

/* One server, as the chief knows it. */
typedef struct lk_ps_server_seat {
    lk_ps_server_location location;
    uint64_t nonce;
    bool was_told;  /* true: it was told that training has ended */
    double silence; /* seconds since its last message */
    double missed;  /* seconds since it was lost */
    float *initial; /* parameters, running statistics, the optimizer's state: [(1 + slots) * elements + statistics] */
} lk_ps_server_seat;

/* The metrics of a node of a batch's tree: sums over its samples. */
typedef struct lk_ps_node_sums {
    lk_range node;
    float loss, hits, top_k;
} lk_ps_node_sums;

struct lk_ps_coordinator {
    lk_post *post;
    lk_ps_identity *identity;
    lk_service *service;
    pthread_t thread;
    bool is_started;
    atomic_bool stop;

    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t changed;
    lk_ps_training training;
    unsigned char *agreement;
    lk_ps_state state;
    char reason[LK_MESSAGE_BYTES];
    lk_status failure; /* LK_OK, or the error for lk__ps_coordinator_next to return */
    char failure_text[LK_MESSAGE_BYTES];
    lk_ps_server_seat *servers; /* [identity->servers] */
    lk_ps_seats seats;          /* of the workers */
    lk_ps_worker_records records;
    atomic_int generation;
    double alone; /* seconds for which unfinished work has been without a worker */
    int damaged;  /* number of messages that could not be read */

    lk_handouts *handouts;
    lk_ps_epoch epoch;
    bool is_stopping; /* no more batches are begun */
    int dropped;      /* hand-outs then dropped because no worker was left */
    double *rates;
    lk_ps_node_sums *sums; /* [n_sums]: the finished nodes of the current batch, whose nodes are shared */
    int n_sums;
    int64_t sums_capacity;
    int64_t stale;            /* largest staleness of these nodes */
    bool is_skipped;          /* true: one of these nodes skips its update */
    lk_ps_finished *finished; /* [n_finished]: to be returned by lk__ps_coordinator_next */
    int n_finished;
    int64_t finished_capacity;
    lk_async_report report;
};

/* Answers a message, or keeps it to answer later: *keep. Errors: LK_ERR_FORMAT (the sender has no reply yet). */
lk_status lk__ps_members_answer(lk_ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep);

lk_status lk__ps_reply(lk_ps_coordinator *c, const lk_mail *to, int kind, uint64_t number, const void *body,
                       size_t bytes, const lk_frame *more, int n_more);
lk_status lk__ps_refuse(lk_ps_coordinator *c, const lk_mail *to, uint64_t number, const char *reason);

/* Finds the seat of the worker that sent a message; *seat NULL: it no longer has one. LK_ERR_FORMAT: no worker ever had
 * this number, or it belongs to another training. */
lk_status lk__ps_find_seat(lk_ps_coordinator *c, int64_t worker, uint64_t run, lk_ps_seat **seat);

/* Lets time pass: members that have been silent for too long are lost. */
lk_status lk__ps_members_tick(lk_ps_coordinator *c, double seconds);
