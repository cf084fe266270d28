/* Implementation of tile.h on AVX2, with the bits of AMX. It serves tests only. */
#pragma once

#include <string.h>

typedef struct tile {
    _Alignas(LK_TILE_ROW_BYTES) uint16_t rows[LK_TILE_ROWS][LK_TILE_ROW_BYTES / 2];
} tile;

static _Thread_local struct {
    bool configured;
    tile tiles[8];
} tile_state;

static void tile_require(bool is_allowed)
{
    if (!is_allowed)
        __builtin_trap();
}

static tile *tile_named(int name)
{
    tile_require(tile_state.configured && name >= 0 && name < 8);
    return &tile_state.tiles[name];
}

static void tile_configure(void)
{
    memset(&tile_state, 0, sizeof tile_state);
    tile_state.configured = true;
}

static void tile_release(void)
{
    tile_state.configured = false;
}

static void tile_zero(int name)
{
    memset(tile_named(name)->rows, 0, sizeof(tile));
}

static void tile_load(int name, const void *from, int64_t stride)
{
    tile *t = tile_named(name);
    for (int64_t r = 0; r < LK_TILE_ROWS; r++)
        memcpy(t->rows[r], (const char *)from + r * stride, LK_TILE_ROW_BYTES);
}

static void tile_store(int name, void *to, int64_t stride)
{
    const tile *t = tile_named(name);
    for (int64_t r = 0; r < LK_TILE_ROWS; r++)
        memcpy((char *)to + r * stride, t->rows[r], LK_TILE_ROW_BYTES);
}

/* Not inlined, so that all of it runs between the changes of the control register. */
static __attribute__((noinline)) void tile_multiply_flushing(tile *sums, const tile *left, const tile *right)
{
    for (int r = 0; r < LK_TILE_ROWS; r++) {
        vec firsts = vec_zero(), seconds = vec_zero();
        for (int k = 0; k < LK_TILE_ROWS; k++) {
            vec_word a = word_broadcast(left->rows[r] + 2 * k), b = word_load(right->rows[k]);
            firsts = vec_fmadd(word_part(a, 0), word_part(b, 0), firsts);
            seconds = vec_fmadd(word_part(a, 1), word_part(b, 1), seconds);
        }
        float *sum = (float *)(void *)sums->rows[r];
        vec_store(sum, vec_add(vec_load(sum), vec_add(firsts, seconds)));
    }
}

/* The processor's own control register makes numbers below FLT_MIN zeros, since the rule for a result that is just
 * below it when it is rounded is hard to emulate. */
static void tile_multiply(int sums, int left, int right)
{
    enum { FLUSH_RESULTS = 0x8000, OPERANDS_ARE_FLUSHED = 0x40 };
    unsigned control = _mm_getcsr();
    tile_require(sums != left && sums != right && left != right);
    _mm_setcsr((control & ~(unsigned)_MM_ROUND_MASK) | FLUSH_RESULTS | OPERANDS_ARE_FLUSHED);
    __asm__ volatile("" : : : "memory");
    tile_multiply_flushing(tile_named(sums), tile_named(left), tile_named(right));
    __asm__ volatile("" : : : "memory");
    _mm_setcsr(control);
}
