/* AMX implementation of tile.h. The compilers' intrinsics are not used: those of gcc 12 do not say that they read
 * memory, so the compiler may move or drop the stores before them. */
#pragma once

/* The operand of LDTILECFG. */
typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16]; /* the last eight, and those of `rows`, are reserved */
    uint8_t rows[16];
} tile_configuration;

LK_BODY void tile_configure(void)
{
    static const tile_configuration full = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(full));
}

LK_BODY void tile_configure_as(const tile_shape shapes[LK_TILES])
{
    tile_configuration wanted = {.palette = 1};
    for (int i = 0; i < LK_TILES; i++) {
        wanted.row_bytes[i] = (uint16_t)shapes[i].row_bytes;
        wanted.rows[i] = (uint8_t)shapes[i].rows;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(wanted));
}

LK_BODY void tile_release(void)
{
    __asm__ volatile("tilerelease");
}

#define tile_load(tile, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")

#define tile_store(tile, to, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")

#define tile_zero(tile) __asm__ volatile("tilezero %tmm" #tile)

#define tile_multiply(sums, left, right) __asm__ volatile("tdpbf16ps %tmm" #right ", %tmm" #left ", %tmm" #sums)
