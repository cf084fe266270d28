/* AMX implementation of tile.h. The compilers' intrinsics are not used: those of gcc 12 do not say that they read
 * memory, so the compiler may move or drop the stores before them. */
#pragma once

LK_BODY void tile_configure(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16]; /* the last eight, and those of `rows`, are reserved */
        uint8_t rows[16];
    } shape = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

LK_BODY void tile_release(void)
{
    __asm__ volatile("tilerelease");
}

#define tile_zero(tile) __asm__ volatile("tilezero %tmm" #tile)

#define tile_load(tile, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")

#define tile_store(tile, to, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")

#define tile_multiply(sums, left, right) __asm__ volatile("tdpbf16ps %tmm" #right ", %tmm" #left ", %tmm" #sums)
