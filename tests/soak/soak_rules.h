/* How an option gets a value. Every row of the option tables of `lockstep train` and `lockstep launch` is drawn by its
 * type and range; a rule narrows that, and a text needs one. */
#pragma once

#include "soak_case.h"
#include "soak_random.h"

typedef struct soak_context {
    soak_random *random;
    soak_case *drawn;            /* with the settings so far */
    const soak_attempt *attempt; /* whose setting it is; NULL: of all */
} soak_context;

typedef struct soak_row {
    const lk_option *option;
    bool is_launch;
    bool is_for_all; /* given to the reference and every attempt alike, since it decides bits or finds the data */
    bool is_placed;  /* its value follows from the shape of an attempt: devices, processes, roles, folders */
} soak_row;

/* All rows of both tables. */
const soak_row *soak_rows(int *count);

/* The row of an option; the program ends if there is none. */
const soak_row *soak_row_of(const char *name, bool is_launch);

/* Draws a value. Returns false if the option has none together with the settings so far. forced: do not leave it to
 * chance. */
bool soak_row_draw(const soak_row *row, soak_context *context, bool forced, char text[SOAK_VALUE_BYTES]);

/* Returns whether a case without the option would be another case, or take minutes. */
bool soak_row_is_needed(const soak_row *row);

/* The first row that cannot be drawn, or the first rule without a row; NULL: there is none. */
const char *soak_rows_gap(void);
