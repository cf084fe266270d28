/* Seats: the chief's numbered slots for workers. A seat is reused by one worker after another, so the list is at most
 * as long as the largest number of workers present at one time plus LK_PS_SPARE_SEATS, however many come and go. Each
 * worker has a number that no other ever gets, so a late message from the previous worker of a seat is not taken for
 * its new one's. */
#pragma once

#include "train/parameter_server/ps_protocol.h"

/* Seats kept for absent workers that may still come. */
enum { LK_PS_SPARE_SEATS = 32 };

typedef enum lk_ps_seat_state {
    LK_PS_SEAT_FREE,
    LK_PS_SEAT_KEPT,  /* kept for a worker that is opening its devices, or was welcomed and has not been heard from */
    LK_PS_SEAT_TAKEN, /* the worker is present */
    LK_PS_SEAT_LOST   /* the worker has been silent for too long, and may come back */
} lk_ps_seat_state;

/* The reason why a worker's request is not answered yet. */
typedef enum lk_ps_reason {
    LK_PS_BUSY,      /* other workers compute what is left */
    LK_PS_HELD_BACK, /* others must push first, because of max_staleness */
    LK_PS_BETWEEN    /* the epoch is over, and the next has not begun */
} lk_ps_reason;

/* The reason now and since when, and the seconds spent so far for two of the reasons. */
typedef struct lk_ps_hold {
    lk_ps_reason reason;
    int64_t since;
    double held_back, between;
} lk_ps_hold;

typedef struct lk_ps_seat {
    lk_ps_seat_state state;
    int64_t worker; /* its number; negative: it has not joined */
    uint64_t nonce; /* identifies its process */
    char host[64];
    int devices, first_core;
    double silence;      /* seconds since its last message */
    lk_mail *waiting;    /* its unanswered request; NULL: none */
    uint64_t number;     /* number of its last request */
    lk_wire_first reply; /* the answer to it, if replied; may be asked for again */
    bool replied;
    lk_ps_ask ask;  /* the body of a waiting LK_PS_ASK */
    bool asks_push; /* the waiting request is a LK_PS_ASK, not a LK_PS_WORK */
    lk_ps_hold hold;
    lk_ps_times times; /* as last reported */
} lk_ps_seat;

typedef struct lk_ps_seats {
    lk_ps_seat *seats;
    int n;
    int64_t capacity;
    int64_t workers; /* numbers given so far: [0, workers) */
} lk_ps_seats;

void lk__ps_seats_free(lk_ps_seats *seats);

/* The seat of a process or worker; NULL: none. */
lk_ps_seat *lk__ps_seats_of_process(lk_ps_seats *seats, uint64_t nonce);
lk_ps_seat *lk__ps_seats_of_worker(lk_ps_seats *seats, int64_t worker);

/* The number of taken seats, those of workers present. */
int lk__ps_seats_count_taken(const lk_ps_seats *seats);

/* Finds a seat for one more process, valid until the next call: a free one; or, if too many are neither free nor taken,
 * the one that has been silent longest, whose worker must be told. Errors: LK_ERR_MEMORY. */
lk_status lk__ps_seats_find(lk_ps_seats *seats, lk_ps_seat **seat);

/* Keeps a free seat for the process, with cores of its host after those of the workers present, or that asked for
 * theirs within the last `patience` seconds. */
void lk__ps_seats_keep(lk_ps_seats *seats, lk_ps_seat *seat, const lk_ps_join *join, double patience);

/* Gives the worker a number, unless it has one. */
void lk__ps_seats_number(lk_ps_seats *seats, lk_ps_seat *seat);

/* Frees the seat. */
void lk__ps_seat_clear(lk_ps_seat *seat);
