/* The rooms of exchanges over links: memory on each device for what is packed, what comes, and the sums. They are kept
 * from step to step, and are the devices' memory, and nothing else's: so it never matters to a device's allocator,
 * which knows one stream, what another stream still reads. */
#ifndef LK_DIST_FLAT_ROOMS_H
#define LK_DIST_FLAT_ROOMS_H

#include "base/status.h"
#include "lockstep/tensor.h"

#include <stdint.h>

typedef struct lk_rooms {
    lk_device *const *devices; /* [n]: the owner's, which live as long */
    int n;
    struct lk_room_set *sets; /* NULL at first */
} lk_rooms;

/* One room of at least `words` words of four bytes on each device, free, as f32: rooms[0 … n), one reference each,
 * whose last one frees them for others. Waits for `links` where a failure was under way. Errors: LK_ERR_MEMORY. */
lk_status lk__rooms_take(lk_rooms *rooms, lk_device *links, int64_t words, lk_tensor **taken);

/* Nothing is under way any more. */
void lk__rooms_release(lk_rooms *rooms);

#endif
