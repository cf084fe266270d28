/* Recomputation: what recompute.c decides, and remake.c carries out. */
#ifndef LK_PROGRAM_RECOMPUTE_H
#define LK_PROGRAM_RECOMPUTE_H

#include "program/program.h"

/* Of a value: calls of the pass as it was recorded; -1: there is none. */
typedef struct lk_value_uses {
    int first_write, last_write;
    int last_early; /* use, before the turn */
    int first_late; /* use, from the turn on */
} lk_value_uses;

/* Calls [begin, end), some of which run again just before call `before`. */
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
    int begin, n_calls;         /* of the pass: what calls are counted from here */
    int first_value, end_value; /* that it is the first to use */
    int *in, *out;       /* values of calls' operands: [call * LK_MAX_INPUTS + i], [call * LK_MAX_OUTPUTS + i]; or -1 */
    lk_value_uses *uses; /* [value] */
    int turn;            /* where forward ends: the first call of those that never run again */
    size_t *crossing;    /* [call]: bytes that are made before it and used, before the turn, from it on */

    lk_stretch stretches[LK_MAX_STRETCHES];
    int n_stretches;

    /* What the stretches come to. A value that is remade is read, from the turn on, as the second run of its calls has
     * left it: it has two lives. */
    bool *needed; /* [call]: runs again */
    bool *remade; /* [value] */
    lk_step *steps;
    int n_steps;
} lk_recomputation;

/* Which life of operand `value` a step reads. */
bool lk__reads_second_life(const lk_recomputation *r, lk_step step, int value);

/* Puts the steps in the place of the pass's calls. */
lk_status lk__program_remake(const lk_recomputation *r);

#endif
