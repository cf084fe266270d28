/* Thins the steps of a training to points, each for the steps since the point before, whose number stays small: the
 * first 2 * `every` - 1 steps are a point each, and from then on each doubling of the number of steps adds `every`
 * points. With LK_STEP_POINTS a million steps make 6,097. The number of a step alone decides whether it ends a point,
 * so a training that was resumed or lengthened has the points of one that was not. */
#pragma once

#include "lockstep/train.h"

enum { LK_STEP_POINTS = 512 };

typedef struct lk_step_point {
    int64_t step;           /* the last one, counted from 1 at the beginning of training */
    double epoch;           /* epochs trained when it ended: 1.5 is in the middle of the second */
    lk_mean loss, accuracy; /* without skipped steps */
    double rate;            /* of the last step */
    int64_t skipped;        /* number of steps */
} lk_step_point;

/* The caller sets `every`, a power of two, and everything else to 0. */
typedef struct lk_step_points {
    int64_t every;
    lk_step_point open; /* the steps that no point holds yet; step 0: there are none */
} lk_step_points;

/* Adds a step. Returns whether it ends a point, and sets *point to it. */
bool lk__step_points_add(lk_step_points *points, const lk_step_report *report, lk_step_point *point);

/* For the end of training: sets *point to the steps that no point holds yet; returns false if there are none. */
bool lk__step_points_end(lk_step_points *points, lk_step_point *point);

/* Saves the open point to a checkpoint and restores it. */
void lk__step_points_save(const lk_step_points *points, lk_state *state);
void lk__step_points_resume(lk_step_points *points, const lk_state *state);
