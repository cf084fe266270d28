/* Conversions between plain activations and layouts that hold images or channels side by side in vectors.
 *
 * The eight or sixteen neighbors of a vector come from as many rows of the plain tensor, so a conversion is a
 * transposition. Elements are copied unchanged: of 32 bits, or bf16 in pairs. */
#pragma once

#include <stdint.h>

/* A lane is an image or a channel, and `inners` vectors of the same lanes lie next to each other at each pixel. In the
 * plain tensor, the pixels of (lane, inner) begin at (lane * inners + inner) * pixels. In vectors, an element lies at
 * ((lane / width * pixels + pixel) * inners + inner) * width + lane % width. */
typedef struct lk_interleaving {
    int64_t width;  /* lanes of a vector, 8 or 16 */
    int64_t lanes;  /* of the tensor; the last vectors are filled up with zeros */
    int64_t inners; /* vectors of one pixel that hold the same lanes */
    int64_t pixels;
} lk_interleaving;

/* Each lane is an image, and an inner is a channel. */
static inline lk_interleaving lk__interleaving_of_images(int64_t images, int64_t channels, int64_t pixels,
                                                         int64_t width)
{
    return (lk_interleaving){.width = width, .lanes = images, .inners = channels, .pixels = pixels};
}

/* Each lane is a channel. `channels` is a multiple of `width`. */
static inline lk_interleaving lk__interleaving_of_channels(int64_t images, int64_t channels, int64_t pixels,
                                                           int64_t width)
{
    return (lk_interleaving){.width = width, .lanes = images * channels, .inners = 1, .pixels = pixels};
}

/* The conversions, compiled for several instruction sets (isa.h). Vectors need no more than a float's alignment. */
typedef struct lk_interleaver {
    void (*interleave)(const lk_interleaving *shape, const float *plain, float *vectors);
    void (*deinterleave)(const lk_interleaving *shape, const float *vectors, float *plain);

    /* The same for bf16 elements, two of which share a word of a lane: an even inner is the low half, and the next
     * inner the high half, or 0 after the last. A pixel has (inners + 1) / 2 vectors of words, which have 32 bits. */
    void (*interleave_pairs)(const lk_interleaving *shape, const uint16_t *plain, void *words);
    void (*deinterleave_pairs)(const lk_interleaving *shape, const void *words, uint16_t *plain);

    /* Convert between bf16 in pairs and f32 vectors of the same shape. Rounding is lk__bf16_round's. */
    void (*widen_pairs)(const lk_interleaving *shape, const void *words, float *vectors);
    void (*round_pairs)(const lk_interleaving *shape, const float *vectors, void *words);
} lk_interleaver;

extern const lk_interleaver lk__interleaver_avx2, lk__interleaver_avx512, lk__interleaver_emulated;
