/* Tiles: the registers of AMX, which hold sixteen rows of 64 bytes each. A file that is compiled with LK_VECTOR_TILES,
 * which needs LK_VECTOR_BF16, may include this header; vector.h says how its copies are named and called.
 *
 *   tile_configure(), tile_release()     around all other calls: gives the tiles their shape, and gives them up
 *   tile_configure_as(shapes)            instead of tile_configure(): the shapes of the eight tiles, if not 16x64 bytes
 *   tile_zero(tile)
 *   tile_load(tile, from, stride)        rows that lie `stride` bytes apart; no alignment
 *   tile_store(tile, to, stride)
 *   tile_multiply(sums, left, right)     sums += left * right; three different tiles
 *
 * A tile is named by one of the digits 0 to 7, since an instruction contains it. Tiles belong to the thread, and keep
 * their contents from function to function.
 *
 * tile_multiply takes `left` with as many words in a row as `right` has rows; `sums` has the rows of `left` and the row
 * size of `right`. Its time is that of the larger of both numbers of rows, so tiles that are not full cost less.
 *
 * If tiles are full, `sums` is [16][16] floats, `left` is [16 rows][16 pairs of bf16], and `right` is [16 pairs][16
 * columns] of pairs of bf16. The product is TDPBF16PS as Intel's manual defines it (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 2, "TDPBF16PS", Operation). For each row and column, one sum of the products of
 * the pairs' first elements and one of those of their second elements begin at 0 and grow pair by pair, by fused
 * multiply-adds. Their sum is added to the element of `sums`. Every step rounds to nearest even, and takes numbers
 * below FLT_MIN for zeros in operands and results. The emulation has the same bits, except those of NaN, and ends the
 * process on what the processor does not allow. */
#pragma once

#include "cpu/vector/vector.h"

enum { LK_TILE_ROWS = 16, LK_TILE_ROW_BYTES = 64, LK_TILES = 8 };

/* At most 16 rows of at most 64 bytes, in whole words of 4 bytes. */
typedef struct tile_shape {
    int rows, row_bytes;
} tile_shape;

#if defined(LK_VECTOR_AVX512)
#include "cpu/vector/tile_amx.h"
#else
#include "cpu/vector/tile_emulated.h"
#endif
