/* The operations of vector/tile.h, compiled for two instruction sets. */
#pragma once

#include <stdint.h>

/* Adds to the sums the products of two left and two right tiles, in all four pairs: sums[i][j] += left[i] * right[j].
 * A row of a matrix of tiles lies `stride` bytes after the one before. */
typedef struct tile_matrices {
    const uint16_t *left[2], *right[2];
    float *sums[2][2];
    int64_t stride;
} tile_matrices;

typedef void (*tile_products)(const tile_matrices *m);

extern const tile_products tile_products_amxbf16, tile_products_emulatedamxbf16;
