/* Parts that the kernels of lanes.h share: tiles of channels, the sizes of what is saved, and the names of the
 * functions that go into lk_lanes_kernels. */
#pragma once

#include "cpu/lanes/lanes.h"
#include "cpu/vector/vector.h"

/* A tile has LK_LANES_PAIR vectors of images by at most LK_LANES_TILE channels. Its 2 x 6 or 2 x 12 accumulators hide
 * the latency of fused multiply-adds and leave registers for the operands. */
enum { LK_LANES_PAIR = 2, LK_LANES_TILE = LK_REGISTERS == 32 ? 12 : 6 };

/* Expands X(n) for each size of a tile. */
#if LK_REGISTERS == 32
#define LK_LANES_TILES(X) LK_UP_TO_SIX(X) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define LK_LANES_TILES(X) LK_UP_TO_SIX(X)
#endif

/* Returns the number of blocks of LK_WIDTH images. */
static inline int64_t lk__lanes_blocks(int64_t images)
{
    return (images + LK_WIDTH - 1) / LK_WIDTH;
}

/* Elements of a vector of words. */
enum { LK_ELEMENTS = LK_WIDTH * LK_PER_WORD };

/* Returns the number of words that hold `channels` channels of a pixel and an image. */
static inline int64_t lk__lanes_words(int64_t channels)
{
    return (channels + LK_PER_WORD - 1) / LK_PER_WORD;
}

/* Returns the number of elements of a tensor of one block of images, with padding. */
static inline int64_t lk__lanes_block_elements(const int64_t size[2], int64_t channels)
{
    return size[0] * size[1] * lk__lanes_words(channels) * LK_ELEMENTS;
}

/* Channels divided into as few tiles of at most `most` as possible, of sizes as equal as possible. A tile consists of
 * whole words. */
typedef struct lk_lanes_tiling {
    int64_t channels, tiles, least, larger; /* the first `larger` have one word more than `least` */
} lk_lanes_tiling;

static inline lk_lanes_tiling lk__lanes_tiling(int64_t channels, int most)
{
    int64_t words = lk__lanes_words(channels), words_of_tile = most / LK_PER_WORD,
            tiles = (words + words_of_tile - 1) / words_of_tile;
    return (lk_lanes_tiling){channels, tiles, words / tiles, words % tiles};
}

typedef struct lk_lanes_tile {
    int64_t first;
    int n;
} lk_lanes_tile;

static inline lk_lanes_tile lk__lanes_tile(const lk_lanes_tiling *tiling, int64_t t)
{
    int64_t larger = tiling->larger;
    int64_t first = (t * tiling->least + (t < larger ? t : larger)) * LK_PER_WORD,
            n = (tiling->least + (t < larger)) * LK_PER_WORD, left = tiling->channels - first;
    return (lk_lanes_tile){first, (int)(n < left ? n : left)};
}

/* The operands of the gradient, for one block of images. */
typedef struct lk_lanes_images {
    const element *dy, *x;
    const uint8_t *saved;
} lk_lanes_images;

/* Returns the kernel's taps along `axis` that lie inside the input for output `o`. */
static inline lk_pixel_range lk__lanes_taps_inside(const lk_lanes_conv *conv, int axis, int64_t o)
{
    int64_t first = o - conv->padding[axis], last = conv->in[axis] - first;
    return (lk_pixel_range){first < 0 ? -first : 0, last < conv->kernel[axis] ? last : conv->kernel[axis]};
}

/* Replaces the maximum by x if x is greater; NaN counts as greater than any number. */
LK_BODY void lk__lanes_take_maximum(vec x, vec_int index, vec *value, vec_int *winner)
{
    vec_mask greater = mask_and(mask_unless_not_greater(x, *value), mask_ordered(*value));
    *value = vec_select(greater, x, *value);
    *winner = int_select(greater, index, *winner);
}

/* Bytes that the forward pass saves of one block of images. */
static inline size_t lk__lanes_block_saved_bytes(const lk_lanes_block *block)
{
    const lk_geometry *pool = &block->pool;
    if (block->max)
        return (size_t)(pool->out[0] * pool->out[1] * pool->channels * LK_WIDTH);
    return (size_t)(pool->in[0] * pool->in[1] * pool->channels) * sizeof(vec_bits);
}

/* The copy with tiles shares what needs none with the copy for bf16. */
#if defined(LK_VECTOR_TILES)
#define LK_LANES_SHARED LK_ISA_BF16
#else
#define LK_LANES_SHARED LK_ISA
#endif

#define lk__lanes_packed_bytes LK_ISA(lk__lanes_packed_bytes)
#define lk__lanes_pack LK_ISA(lk__lanes_pack)
#define lk__lanes_forward_bytes LK_ISA(lk__lanes_forward_bytes)
#define lk__lanes_conv2d LK_ISA(lk__lanes_conv2d)
#define lk__lanes_avg_pool LK_LANES_SHARED(lk__lanes_avg_pool)
#define lk__lanes_avg_pool_grad LK_LANES_SHARED(lk__lanes_avg_pool_grad)
#define lk__lanes_saved_bytes LK_LANES_SHARED(lk__lanes_saved_bytes)
#define lk__lanes_block_pair LK_ISA(lk__lanes_block_pair)
#define lk__lanes_block_forward LK_ISA(lk__lanes_block_forward)
#define lk__lanes_grad_bytes LK_ISA(lk__lanes_grad_bytes)
#define lk__lanes_block_grad LK_ISA(lk__lanes_block_grad)
#define lk__lanes_vectors_of LK_LANES_SHARED(lk__lanes_vectors_of)
#define lk__lanes_spread_rows LK_LANES_SHARED(lk__lanes_spread_rows)

/* lk_lanes_kernels documents these. */
size_t lk__lanes_packed_bytes(const lk_lanes_conv *conv);
void lk__lanes_pack(const lk_lanes_conv *conv, const void *w, bool for_gradient, void *packed);
size_t lk__lanes_forward_bytes(const lk_lanes_block *block);
void lk__lanes_conv2d(const lk_lanes_conv *conv, const void *x, const void *packed, const float *bias, void *y,
                      void *memory);
void lk__lanes_avg_pool(const lk_geometry *pool, const void *x, void *y);
void lk__lanes_avg_pool_grad(const lk_geometry *pool, const void *dy, void *dx);
size_t lk__lanes_saved_bytes(const lk_lanes_block *block);
void lk__lanes_block_forward(const lk_lanes_block *block, const void *x, const void *packed, const float *bias, void *y,
                             uint8_t *saved, void *memory);
size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad);
void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory);

/* Runs the forward pass for two blocks of images, b and b + 1, instead of all; an odd last block is its own partner. x
 * points to the two blocks; y and saved are those of all images. */
void lk__lanes_block_pair(const lk_lanes_block *block, int64_t b, const element *const x[LK_LANES_PAIR],
                          const element *packed, const float *bias, element *y, uint8_t *saved);

/* Returns block b of images of a tensor with `channels` of `size`, converted into `made` if the tensor is row-major. */
const element *lk__lanes_vectors_of(const lk_lanes_block *block, const void *x, int64_t channels, const int64_t size[2],
                                    int64_t b, bool plain, element *made);

/* Computes rows of dconv, the gradient of the convolution's result, for the channels of a tile, in pairs for bf16.
 * to: [row][column][tile.n], with the columns that the pooling reads. */
void lk__lanes_spread_rows(const lk_lanes_block *block, const lk_lanes_images *images, lk_pixel_range rows,
                           lk_lanes_tile tile, element *to);
