/* The chief's list of its workers. It is as long as the most workers that were there at one time, and PS_SPARE_SEATS,
 * however many have come and gone: seats are had by one after the other. A worker is known by its number, which nobody
 * else ever has, so what comes late from one that had the seat before is not taken for its owner's. */
#ifndef LK_TRAIN_PS_SEATS_H
#define LK_TRAIN_PS_SEATS_H

#include "train/ps_protocol.h"

/* Seats of workers that are not there, but may be yet. */
enum { PS_SPARE_SEATS = 32 };

typedef enum ps_seat_state {
    PS_SEAT_FREE,
    PS_SEAT_KEPT,  /* for one that is opening its devices, or was welcomed and has not been heard of since */
    PS_SEAT_TAKEN, /* the worker is there */
    PS_SEAT_LOST   /* it has been silent for too long, and may come back */
} ps_seat_state;

/* Why a worker's request is not answered, since when, and how long it has been so for either of two reasons. */
typedef enum ps_reason { PS_BUSY, PS_HELD_BACK, PS_BETWEEN } ps_reason;

typedef struct ps_hold {
    ps_reason reason;
    int64_t since;
    double held_back, between;
} ps_hold;

typedef struct ps_seat {
    ps_seat_state state;
    int64_t worker; /* its number; below 0: it has not joined */
    uint64_t nonce; /* of its process */
    char host[64];
    int devices, first_core;
    double silence;      /* seconds since it was heard of */
    lk_mail *waiting;    /* its request, which is not answered yet; NULL: none */
    uint64_t number;     /* of its last request … */
    lk_wire_first reply; /* … and the answer, if there was one, which may be asked for again */
    bool replied;
    ps_ask ask;     /* of a waiting PS_ASK */
    bool asks_push; /* waiting is a PS_ASK, not a PS_WORK */
    ps_hold hold;
    ps_times times; /* as it last said */
} ps_seat;

typedef struct ps_seats {
    ps_seat *seats;
    int n, capacity;
    int64_t workers; /* numbers given so far: [0, workers) */
} ps_seats;

void lk__ps_seats_free(ps_seats *seats);

/* NULL: nobody has it. */
ps_seat *lk__ps_seats_of_process(ps_seats *seats, uint64_t nonce);
ps_seat *lk__ps_seats_of_worker(ps_seats *seats, int64_t worker);

/* Workers that are there. */
int lk__ps_seats_count(const ps_seats *seats);

/* A seat for one more process, good until the next call: a free one; or, where too many are neither free nor taken,
 * that of the one that has been silent longest, who is to be told. Errors: LK_ERR_MEMORY. */
lk_status lk__ps_seats_find(ps_seats *seats, ps_seat **seat);

/* Keeps a free seat for the process, with cores of its host behind those of workers that are there, or that have asked
 * for theirs within `patience` seconds. */
void lk__ps_seats_keep(ps_seats *seats, ps_seat *seat, const ps_join *join, double patience);

/* Gives it a number, unless it has one. */
void lk__ps_seats_number(ps_seats *seats, ps_seat *seat);

/* Nobody's from now on. */
void lk__ps_seat_clear(ps_seat *seat);

#endif
