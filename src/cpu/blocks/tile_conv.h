/* The parts of a convolution on tiles: see lk__block_tiles_amxbf16 in block_conv.h. */
#pragma once

#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/vector/tile.h"

#include <string.h>

/* A step multiplies two tiles of the left operand by two of the right one. Its sums are in four tiles, and the other
 * four hold the operands. In memory a tile of operands has TILE elements next to each other, and one of sums SUMS
 * floats. A step's operands and sums are pairs of tiles: for sums, both tiles of the first left one come first. */
enum { BLOCK = LK_WIDTH, PAIR = 2, WIDTH = PAIR * BLOCK };
enum { ROWS = LK_TILE_ROWS, DEPTH = LK_PER_WORD * LK_TILE_ROWS, TILE = ROWS * DEPTH, STEP = PAIR * TILE };
enum { SUMS = ROWS * BLOCK, STEP_SUMS = PAIR * PAIR * SUMS };

/* Images that are computed together. */
enum { IMAGES_AT_ONCE = 2 * ROWS };

static int64_t tile_conv_area_of(const int64_t size[2])
{
    return size[0] * size[1];
}

static int64_t tile_conv_pairs(int64_t channels)
{
    return lk__divide_up(channels, WIDTH);
}

/* Takes count * size bytes of `memory`, of which *used are taken. memory = NULL: only counts them, and what it returns
 * is no address. */
static void *tile_conv_take(void *memory, size_t *used, int64_t count, size_t size)
{
    uintptr_t taken = (uintptr_t)memory + *used;
    *used += ((size_t)count * size + LK_TILE_ROW_BYTES - 1) / LK_TILE_ROW_BYTES * LK_TILE_ROW_BYTES;
    return (void *)taken;
}

/* --- sums in tiles ------------------------------------------------------------------------------------------------ */

LK_BODY void tile_conv_clear(void)
{
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
}

LK_BODY void tile_conv_load(const float *sums)
{
    tile_load(0, sums, LK_TILE_ROW_BYTES);
    tile_load(1, sums + SUMS, LK_TILE_ROW_BYTES);
    tile_load(2, sums + 2 * SUMS, LK_TILE_ROW_BYTES);
    tile_load(3, sums + 3 * SUMS, LK_TILE_ROW_BYTES);
}

LK_BODY void tile_conv_store(float *sums)
{
    tile_store(0, sums, LK_TILE_ROW_BYTES);
    tile_store(1, sums + SUMS, LK_TILE_ROW_BYTES);
    tile_store(2, sums + 2 * SUMS, LK_TILE_ROW_BYTES);
    tile_store(3, sums + 3 * SUMS, LK_TILE_ROW_BYTES);
}

/* The first two left, or right, tiles of several steps. */
typedef const element *const tile_pair[PAIR];

/* Adds the products of `steps` steps: of two left tiles and of two right ones, each `left_step` or `right_step`
 * elements after the one of the step before. */
LK_BODY void tile_conv_add(tile_pair left, int64_t left_step, tile_pair right, int64_t right_step, int64_t steps)
{
    for (int64_t s = 0; s < steps; s++) {
        tile_load(4, left[0] + s * left_step, LK_TILE_ROW_BYTES);
        tile_load(6, right[0] + s * right_step, LK_TILE_ROW_BYTES);
        tile_load(7, right[1] + s * right_step, LK_TILE_ROW_BYTES);
        tile_load(5, left[1] + s * left_step, LK_TILE_ROW_BYTES);
        tile_multiply(0, 4, 6);
        tile_multiply(1, 4, 7);
        tile_multiply(2, 5, 6);
        tile_multiply(3, 5, 7);
    }
}
