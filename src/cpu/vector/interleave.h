/* Conversions between plain activations and layouts that hold images or channels side by side in vectors.
 *
 * The eight or sixteen neighbors of a vector come from as many rows of the plain tensor, so a conversion is a
 * transposition. Elements have 32 bits and are copied unchanged. */
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
lk_interleaving lk__interleaving_of_images(int64_t images, int64_t channels, int64_t pixels, int64_t width);
/* Each lane is a channel. `channels` is a multiple of `width`. */
lk_interleaving lk__interleaving_of_channels(int64_t images, int64_t channels, int64_t pixels, int64_t width);

/* Call these only where lk__has_avx2() holds on x86-64. Vectors need no more than a float's alignment. */
void lk__interleave(const lk_interleaving *shape, const float *plain, float *vectors);
void lk__deinterleave(const lk_interleaving *shape, const float *vectors, float *plain);
