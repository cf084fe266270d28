/* The placement says which server holds which part of which variable. It depends only on the sizes of the variables and
 * the number of servers, so all processes compute the same placement. */
#pragma once

#include "lockstep/status.h"

#include <stdint.h>

/* A variable with more than LK_PLACEMENT_WHOLE elements is split over all servers: 256 KiB of f32, the size at which
 * TensorFlow's MinSizePartitioner begins to split. Parts begin at multiples of LK_PLACEMENT_STEP elements, as in
 * lk_pack. */
enum { LK_PLACEMENT_WHOLE = 1 << 16, LK_PLACEMENT_STEP = 16, LK_MAX_SERVERS = 256 };

/* Elements [begin, begin + count) of a variable, at offset `at` in the memory of their server. */
typedef struct lk_placement_part {
    int variable, server;
    int64_t begin, count, at;
} lk_placement_part;

typedef struct lk_placement {
    lk_placement_part *parts; /* [n]: by server, then by variable, then by element */
    int n, servers;
    int first[LK_MAX_SERVERS + 1];    /* parts of server s: [first[s], first[s + 1]) */
    int64_t elements[LK_MAX_SERVERS]; /* of a server, with the gaps between parts */
    int64_t extra[LK_MAX_SERVERS];    /* elements of the extra values, see below */
    int extra_server;
} lk_placement;

/* counts[0 … variables): elements of each. Large variables are split evenly. The others go, largest first, to the
 * server with the fewest elements. `extra`: elements that stay together and are placed last, on extra_server
 * (batch-norm's running statistics). Errors: LK_ERR_ARGUMENT (no variable, more than LK_MAX_SERVERS servers),
 * LK_ERR_MEMORY. */
lk_status lk__placement_new(const int64_t *counts, int variables, int64_t extra, int servers, lk_placement *placement);

/* Checks that what a server sends or receives in one frame fits it: its elements, or `slots` values of the optimizer's
 * state for each. Errors: LK_ERR_ARGUMENT, which says how many servers would do; LK_ERR_MEMORY. */
lk_status lk__placement_check_frames(const int64_t *counts, int variables, int servers, int slots);

void lk__placement_free(lk_placement *placement);
