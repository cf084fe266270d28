/* The gradient of the weights of a convolution on tiles: see lk__block_tiles_amxbf16 in block_conv.h. */
#pragma once

#include "cpu/blocks/block_conv.h"
#include "cpu/vector/vector.h"

/* The functions of lk_block_algorithm. */
size_t LK_ISA(lk__tile_weight_grad_bytes)(const lk_geometry *conv);
void LK_ISA(lk__tile_weight_grad)(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory);
