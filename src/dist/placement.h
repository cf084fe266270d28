/* Which server holds which part of which variable. A function of the variables' sizes and of the number of servers, so
 * that all processes come to the same without asking. */
#ifndef LK_DIST_PLACEMENT_H
#define LK_DIST_PLACEMENT_H

#include "lockstep/status.h"

#include <stdint.h>

/* A variable of more elements is split over all servers: 256 KiB of f32, from where on TensorFlow's
 * MinSizePartitioner splits. Parts begin at multiples of LK_PLACEMENT_STEP elements, as lk_pack has it. */
enum { LK_PLACEMENT_WHOLE = 1 << 16, LK_PLACEMENT_STEP = 16, LK_MAX_SERVERS = 256 };

/* Elements [begin, begin + count) of a variable, which lie at `at` in the memory of their server. */
typedef struct lk_placed {
    int variable, server;
    int64_t begin, count, at;
} lk_placed;

typedef struct lk_placement {
    lk_placed *parts; /* [n]: by server, then by variable, then by element */
    int n, servers;
    int first[LK_MAX_SERVERS + 1];    /* parts of server s: [first[s], first[s + 1]) */
    int64_t elements[LK_MAX_SERVERS]; /* of a server, with the gaps between parts */
    int64_t extra[LK_MAX_SERVERS];    /* of what is placed besides: see below */
    int extra_server;
} lk_placement;

/* counts[0 … variables): elements of each. Large variables are split evenly; the others go, largest first, where there
 * is least. `extra`: elements that stay together and go last (batch-norm's running statistics), on extra_server.
 * Errors: LK_ERR_ARGUMENT (no variable, more than LK_MAX_SERVERS servers), LK_ERR_MEMORY. */
lk_status lk__placement_new(const int64_t *counts, int variables, int64_t extra, int servers, lk_placement *placement);
void lk__placement_free(lk_placement *placement);

#endif
