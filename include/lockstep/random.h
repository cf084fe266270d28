/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", SC'11). A number depends only on its purpose, not on the thread or the time that asks for it: the key holds
 * (seed, purpose), and the counter holds (epoch or step, sample, element). */
#ifndef LOCKSTEP_RANDOM_H
#define LOCKSTEP_RANDOM_H

#include "lockstep/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[4] = Philox4x32-10(counter[4], key[2]). */
LK_API void lk_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream of random numbers for one purpose. lk_random_block addresses its elements. */
typedef struct lk_random_key {
    uint64_t seed;
    uint64_t purpose; /* lk_random_purpose("conv1.weight") */
    uint64_t epoch;   /* or step; below 2^32 */
    uint64_t sample;  /* below 2^32 */
} lk_random_key;

/* XXH3-64 of a purpose, such as the name of a layer, an augmentation or a parameter. */
LK_API uint64_t lk_random_purpose(const char *name);

/* The four 32-bit words of block `block` of the stream: elements 4 * block … 4 * block + 3. `block` below 2^32. */
LK_API void lk_random_block(const lk_random_key *key, uint64_t block, uint32_t out[4]);

#ifdef __cplusplus
}
#endif

#endif
