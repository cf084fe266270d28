/* Between plain activations and those with images or channels side by side in vectors: for each pixel, eight or sixteen
 * neighbours in memory come from as many rows of the plain tensor. Elements have 32 bits, and are copied as they are.
 */
#ifndef LK_CPU_INTERLEAVE_H
#define LK_CPU_INTERLEAVE_H

#include <stdint.h>

/* Plain, the pixels of a lane and an inner lie at (lane * inners + inner) * pixels; in vectors, the lane's element of a
 * pixel at ((lane / width * pixels + pixel) * inners + inner) * width + lane % width. */
typedef struct lk_interleaving {
    int64_t width;  /* lanes of a vector, 8 or 16 */
    int64_t lanes;  /* in all; what is missing in the last vectors are zeros */
    int64_t inners; /* vectors beside each other, of the same lanes */
    int64_t pixels;
} lk_interleaving;

/* Images in the lanes: a lane is an image, an inner a channel. */
lk_interleaving lk__interleaving_of_images(int64_t images, int64_t channels, int64_t pixels, int64_t width);
/* Blocks of channels: a lane is a channel. `channels` is a multiple of `width`. */
lk_interleaving lk__interleaving_of_channels(int64_t images, int64_t channels, int64_t pixels, int64_t width);

/* Only where lk__has_avx2 says so, on x86-64. Vectors are aligned as floats. */
void lk__interleave(const lk_interleaving *shape, const float *plain, float *vectors);
void lk__deinterleave(const lk_interleaving *shape, const float *vectors, float *plain);

#endif
