#include "tile_products.h"

#include "cpu/vector/tile.h"

static void add_products(const tile_matrices *m)
{
    tile_configure();
    tile_load(0, m->sums[0][0], m->stride);
    tile_load(1, m->sums[0][1], m->stride);
    tile_load(2, m->sums[1][0], m->stride);
    tile_load(3, m->sums[1][1], m->stride);
    tile_load(4, m->left[0], m->stride);
    tile_load(5, m->left[1], m->stride);
    tile_load(6, m->right[0], m->stride);
    tile_load(7, m->right[1], m->stride);
    tile_multiply(0, 4, 6);
    tile_multiply(1, 4, 7);
    tile_multiply(2, 5, 6);
    tile_multiply(3, 5, 7);
    tile_store(0, m->sums[0][0], m->stride);
    tile_store(1, m->sums[0][1], m->stride);
    tile_store(2, m->sums[1][0], m->stride);
    tile_store(3, m->sums[1][1], m->stride);
    tile_release();
}

const tile_products LK_ISA(tile_products) = add_products;
