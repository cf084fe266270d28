/* Recomputation: recompute.c decides what runs again, and remake.c rewrites the calls. */
#pragma once

#include "program/program.h"

/* Uses of a value, as calls of the recorded pass; -1: none. */
typedef struct lk_value_uses {
    int first_write, last_write;
    int last_early; /* the last use before the turn */
    int first_late; /* the first use from the turn on */
} lk_value_uses;

/* Calls [begin, end). If `again`, some of them run again just before call `before`. */
typedef struct lk_stretch {
    int begin, end;
    bool again;
    int before;
} lk_stretch;

/* A call of the rewritten pass. */
typedef struct lk_step {
    int call;
    bool again;
} lk_step;

enum { LK_MAX_STRETCHES = 64 };

typedef struct lk_recomputation {
    lk_program *program;        /* with its values */
    int begin, n_calls;         /* of the pass; calls are counted from its beginning */
    int first_value, end_value; /* the values that the pass is the first to use */
    int *in, *out; /* the values of calls' operands, or -1: [call * LK_MAX_INPUTS + i], [call * LK_MAX_OUTPUTS + i] */
    lk_value_uses *uses; /* [value] */
    int turn;            /* the end of forward: no call from here on runs again */
    size_t *crossing;    /* [call]: bytes made before the call that it or later calls of forward use */

    lk_stretch stretches[LK_MAX_STRETCHES];
    int n_stretches;

    /* The result. From the turn on, a value that is remade is read from the second run of its calls: it has two lives.
     */
    bool *needed; /* [call]: runs again */
    bool *remade; /* [value] */
    lk_step *steps;
    int n_steps;
} lk_recomputation;

/* Returns whether a step reads the second life of operand `value`. */
bool lk__reads_second_life(const lk_recomputation *r, lk_step step, int value);

/* See lk_program_opts. */
lk_status lk__program_recompute(lk_program *program);
