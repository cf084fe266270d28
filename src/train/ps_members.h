/* What a coordinator knows, under its mutex, and the parts of its thread: ps_coordinator.c keeps time, ps_members.c
 * knows who is there, ps_registry.c where servers are, ps_work.c hands out. */
#ifndef LK_TRAIN_PS_MEMBERS_H
#define LK_TRAIN_PS_MEMBERS_H

#include "base/status.h"
#include "dist/handouts.h"
#include "train/ps_coordinator.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ps_server_seat {
    ps_server_place place;
    uint64_t nonce;
    bool was_told;
    double silence;
    double missed;  /* seconds since it was lost */
    float *initial; /* parameters, running statistics, the optimiser's state: [(1 + slots) * elements + statistics] */
} ps_server_seat;

struct ps_coordinator {
    lk_post *post;
    ps_place *place;
    lk_service *service;
    pthread_t thread;
    bool is_started;
    atomic_bool stop;

    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    ps_training training;
    unsigned char *agreement;
    ps_state state;
    char reason[LK_MESSAGE_BYTES];
    lk_status failure; /* LK_OK, or what lk__ps_coordinator_next is to say */
    char failure_text[LK_MESSAGE_BYTES];
    ps_server_seat *servers; /* [place->servers] */
    ps_seats seats;          /* of workers */
    ps_crew crew;
    atomic_int generation;
    double alone; /* seconds of an epoch without a worker */
    int damaged;  /* messages that were not understood */

    lk_handouts *handouts;
    ps_epoch epoch;
    bool is_stopping; /* no batch is begun any more */
    int dropped;      /* hand-outs that nobody was left for then */
    double *rates;
    ps_finished partial;   /* of the batch whose nodes are being finished */
    int64_t stale;         /* most of these nodes */
    ps_finished *finished; /* [n_finished], to be told */
    int n_finished, finished_capacity;
    lk_async_report report;
};

/* Sets the failure, unless there is one already. With the mutex, as everything below. */
void lk__ps_fail(ps_coordinator *c, lk_status status, const char *format, ...) LK_PRINTF(3, 4);

/* Answers mail, or keeps it to be answered later: *keep. Errors: LK_ERR_FORMAT (nobody has been told yet). */
lk_status lk__ps_members_answer(ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep);
lk_status lk__ps_work_answer(ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep);

lk_status lk__ps_reply(ps_coordinator *c, const lk_mail *to, int kind, uint64_t number, const void *body, size_t bytes,
                       const lk_frame *more, int n_more);
lk_status lk__ps_refuse(ps_coordinator *c, const lk_mail *to, uint64_t number, const char *reason);

/* The seat of a message's worker; NULL: it had one. LK_ERR_FORMAT: there was never one of that number, or it belongs to
 * another training. */
lk_status lk__ps_find_seat(ps_coordinator *c, int64_t worker, uint64_t run, ps_seat **seat);

/* Tells a worker without a seat, which sent a PS_ASK or a PS_WORK, that it is to join again. */
lk_status lk__ps_forget(ps_coordinator *c, const lk_mail *mail, uint64_t number, bool asks_push);

/* Time goes by: who has been silent for too long is lost. */
lk_status lk__ps_members_tick(ps_coordinator *c, double seconds);

/* Of servers: PS_JOIN and PS_BEAT, PS_TABLE, and time. */
lk_status lk__ps_registry_join(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join);
lk_status lk__ps_registry_hear(ps_coordinator *c, const ps_beat *beat);
lk_status lk__ps_registry_send(ps_coordinator *c, const lk_mail *mail, uint64_t number);
void lk__ps_registry_tick(ps_coordinator *c, double seconds);

/* Answers those that wait and can be answered now. */
lk_status lk__ps_work_serve(ps_coordinator *c);

#endif
