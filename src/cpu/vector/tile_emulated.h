/* Implementation of tile.h on AVX2, with the bits of AMX. It serves tests only. */
#pragma once

#include <string.h>

typedef struct tile {
    tile_shape shape; /* the rest of `rows` is 0 */
    _Alignas(LK_TILE_ROW_BYTES) uint16_t rows[LK_TILE_ROWS][LK_TILE_ROW_BYTES / 2];
} tile;

static _Thread_local struct {
    bool configured;
    tile tiles[LK_TILES];
} tile_state;

static inline void tile_require(bool is_allowed)
{
    if (!is_allowed)
        __builtin_trap();
}

static inline tile *tile_named(int name)
{
    tile_require(tile_state.configured && name >= 0 && name < LK_TILES);
    return &tile_state.tiles[name];
}

static inline void tile_configure_as(const tile_shape shapes[LK_TILES])
{
    memset(&tile_state, 0, sizeof tile_state);
    for (int i = 0; i < LK_TILES; i++) {
        tile_shape shape = shapes[i];
        tile_require(shape.rows > 0 && shape.rows <= LK_TILE_ROWS);
        tile_require(shape.row_bytes > 0 && shape.row_bytes <= LK_TILE_ROW_BYTES && shape.row_bytes % 4 == 0);
        tile_state.tiles[i].shape = shape;
    }
    tile_state.configured = true;
}

static inline void tile_configure(void)
{
    tile_shape shapes[LK_TILES];
    for (int i = 0; i < LK_TILES; i++)
        shapes[i] = (tile_shape){LK_TILE_ROWS, LK_TILE_ROW_BYTES};
    tile_configure_as(shapes);
}

static inline void tile_release(void)
{
    tile_state.configured = false;
}

static inline void tile_zero(int name)
{
    tile *t = tile_named(name);
    memset(t->rows, 0, sizeof t->rows);
}

static inline void tile_load(int name, const void *from, int64_t stride)
{
    tile *t = tile_named(name);
    for (int64_t r = 0; r < t->shape.rows; r++)
        memcpy(t->rows[r], (const char *)from + r * stride, (size_t)t->shape.row_bytes);
}

static inline void tile_store(int name, void *to, int64_t stride)
{
    const tile *t = tile_named(name);
    for (int64_t r = 0; r < t->shape.rows; r++)
        memcpy((char *)to + r * stride, t->rows[r], (size_t)t->shape.row_bytes);
}

static inline void tile_require_match(const tile *sums, const tile *left, const tile *right)
{
    tile_require(sums->shape.rows == left->shape.rows && sums->shape.row_bytes == right->shape.row_bytes &&
                 left->shape.row_bytes == right->shape.rows * 4);
}

/* Not inlined, so that all of it runs between the changes of the control register. */
static __attribute__((noinline)) void tile_multiply_flushing(tile *sums, const tile *left, const tile *right)
{
    for (int r = 0; r < left->shape.rows; r++) {
        vec firsts = vec_zero(), seconds = vec_zero();
        for (int k = 0; k < right->shape.rows; k++) {
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
static inline void tile_multiply(int sums, int left, int right)
{
    enum { FLUSH_RESULTS = 0x8000, OPERANDS_ARE_FLUSHED = 0x40 };
    unsigned control = _mm_getcsr();
    tile_require(sums != left && sums != right && left != right);
    tile_require_match(tile_named(sums), tile_named(left), tile_named(right));
    _mm_setcsr((control & ~(unsigned)_MM_ROUND_MASK) | FLUSH_RESULTS | OPERANDS_ARE_FLUSHED);
    __asm__ volatile("" : : : "memory");
    tile_multiply_flushing(tile_named(sums), tile_named(left), tile_named(right));
    __asm__ volatile("" : : : "memory");
    _mm_setcsr(control);
}
