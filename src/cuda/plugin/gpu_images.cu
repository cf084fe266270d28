/* Makes augmented and normalized images from the bytes of a data set in the GPU's memory, with the arithmetic that the
 * host shares (ops/augment_choice.h, ops/pixel_formulas.h), in the same order. So each pixel has the same bits.
 *
 * A block makes an image. Changes that move pixels are followed back from a pixel to its bytes. Changes that look at
 * the whole image, contrast and RandAugment's, are passes over the image in the block's part of `work`. Sums and
 * histograms are of whole numbers, so the order in which threads add to them does not matter. */
#include "cuda/plugin/gpu_elements.cuh"

typedef lk_gpu_prepare_images call;

/* The augmentation of one image. */
typedef struct plan {
    lk_augment_choice choice;
    bool shifted, turned;
    lk_pixel_place shift;
    lk_pixel_map turn;
} plan;

/* The threads of a block find this out about a plane or an image together. */
typedef struct findings {
    unsigned long long units; /* of lk__color_units */
    unsigned least, most;     /* the bits of floats that are not negative, which are in their order */
    unsigned count[LK_COLOR_LEVELS];
    float level[LK_COLOR_LEVELS];
    bool is_even; /* equalizing changes nothing */
} findings;

/* An image in work, as lk_color_image. */
typedef struct image {
    float *values, *plane; /* [channels, pixels], [pixels] */
    unsigned channels, pixels;
    lk_plane_size size;
} image;

static inline __device__ plan choose(const call &a, int64_t sample)
{
    plan p;
    lk__augment_choose(&a.opts, a.size, &a.chances, *a.epoch, sample, &p.choice);
    p.shifted = p.choice.shift_down != 0 || p.choice.shift_right != 0;
    p.turned = p.choice.degrees != 0;
    p.shift = lk__pixel_place(p.choice.shift_down, p.choice.shift_right);
    p.turn = lk__pixel_rotation(p.choice.degrees);
    return p;
}

/* --- moved pixels ------------------------------------------------------------------------------------------------- */

static inline __device__ int64_t clamp_index(int64_t value, int64_t count)
{
    return value < 0 ? 0 : value < count ? value : count - 1;
}

/* Interpolates between four pixels: first between two rows in each of two columns, then between the columns. */
static inline __device__ float shifted_pixel(const call &a, const plan &p, const uint8_t *plane, int64_t y, int64_t x)
{
    const uint8_t *upper = plane + clamp_index(y + p.shift.row, a.size.height) * a.size.width;
    const uint8_t *lower = plane + clamp_index(y + p.shift.row + 1, a.size.height) * a.size.width;
    int64_t i = clamp_index(x + p.shift.column, a.size.width), j = clamp_index(x + p.shift.column + 1, a.size.width);
    float left = lk__pixel_blend(lk__pixel_from_byte(upper[i]), lk__pixel_from_byte(lower[i]), p.shift.down);
    float right = lk__pixel_blend(lk__pixel_from_byte(upper[j]), lk__pixel_from_byte(lower[j]), p.shift.down);
    return lk__pixel_blend(left, right, p.shift.right);
}

/* A pixel after shift and flips, 0 outside. */
static inline __device__ float flipped_pixel(const call &a, const plan &p, const uint8_t *plane, int64_t y, int64_t x)
{
    if (!lk__pixel_is_inside(a.size, y, x))
        return 0;
    if (p.choice.flipped_down)
        y = a.size.height - 1 - y;
    if (p.choice.flipped)
        x = a.size.width - 1 - x;
    return p.shifted ? shifted_pixel(a, p, plane, y, x) : lk__pixel_from_byte(plane[y * a.size.width + x]);
}

static inline __device__ float turned_pixel(const call &a, const plan &p, const uint8_t *plane, int64_t y, int64_t x)
{
    lk_pixel_place at = lk__pixel_map_place(&p.turn, a.size, y, x);
    float around[2][2];
    for (int i = 0; i < 4; i++)
        around[i / 2][i % 2] = flipped_pixel(a, p, plane, at.row + i / 2, at.column + i % 2);
    return lk__pixel_between(around, &at);
}

/* A pixel before contrast. */
static inline __device__ float moved_pixel(const call &a, const plan &p, const uint8_t *plane, int64_t y, int64_t x)
{
    y += p.choice.crop_down;
    x += p.choice.crop_right;
    float value = 0;
    if (lk__pixel_is_inside(a.size, y, x))
        value = p.turned ? turned_pixel(a, p, plane, y, x) : flipped_pixel(a, p, plane, y, x);
    return a.opts.brightness > 0 ? lk__color_clip(value * (float)p.choice.brightness) : value;
}

/* --- whole images ------------------------------------------------------------------------------------------------- */

static inline __device__ unsigned bits_of(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline __device__ float float_of(unsigned bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Each of the following is called, and ends, with the image in step among the threads. */

static __device__ void change_contrast(const image &m, float factor, findings &f)
{
    if (threadIdx.x == 0)
        f.units = 0;
    __syncthreads();
    unsigned long long units = 0;
    for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x)
        units += (unsigned long long)lk__color_units(lk__color_gray(m.values, m.channels, m.pixels, i));
    atomicAdd(&f.units, units);
    __syncthreads();
    float mean = lk__color_mean((int64_t)f.units, m.pixels);
    for (unsigned i = threadIdx.x; i < m.channels * m.pixels; i += blockDim.x)
        m.values[i] = lk__color_mix(mean, m.values[i], factor);
    __syncthreads();
}

static __device__ void change_saturation(const image &m, float factor)
{
    for (unsigned i = threadIdx.x; i < (m.channels == 3 ? m.pixels : 0); i += blockDim.x) {
        float gray = lk__color_gray(m.values, 3, m.pixels, i);
        for (int c = 0; c < 3; c++)
            m.values[c * m.pixels + i] = lk__color_mix(gray, m.values[c * m.pixels + i], factor);
    }
    __syncthreads();
}

static __device__ void stretch(const image &m, float *plane, findings &f)
{
    unsigned least = bits_of(plane[0]), most = least;
    if (threadIdx.x == 0)
        f.least = f.most = least;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x) {
        unsigned bits = bits_of(plane[i]);
        least = bits < least ? bits : least;
        most = bits > most ? bits : most;
    }
    atomicMin(&f.least, least);
    atomicMax(&f.most, most);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < (f.most > f.least ? m.pixels : 0); i += blockDim.x)
        plane[i] = lk__color_stretched(plane[i], float_of(f.least), float_of(f.most));
    __syncthreads();
}

static __device__ void equalize(const image &m, float *plane, findings &f)
{
    for (unsigned level = threadIdx.x; level < LK_COLOR_LEVELS; level += blockDim.x)
        f.count[level] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x)
        atomicAdd(&f.count[lk__color_level(plane[i])], 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
        int64_t below = 0, last = 0;
        for (int level = 0; level < LK_COLOR_LEVELS; level++)
            last = f.count[level] > 0 ? f.count[level] : last;
        int64_t step = (m.pixels - last) / (LK_COLOR_LEVELS - 1);
        f.is_even = step == 0;
        for (int level = 0; level < LK_COLOR_LEVELS && step > 0; level++) {
            f.level[level] = lk__color_equalized(below, step);
            below += f.count[level];
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < (f.is_even ? 0 : m.pixels); i += blockDim.x)
        plane[i] = f.level[lk__color_level(plane[i])];
    __syncthreads();
}

static inline __device__ float value_changed(lk_rand_operation operation, double magnitude, double signed_magnitude,
                                             float value)
{
    if (operation == LK_RAND_BRIGHTNESS)
        return lk__color_clip(value * lk__rand_factor(signed_magnitude));
    if (operation == LK_RAND_POSTERIZE)
        return lk__color_posterized(value, lk__rand_bits(magnitude));
    return operation == LK_RAND_SOLARIZE ? lk__color_solarized(value, lk__rand_threshold(magnitude)) : value;
}

/* A change that looks at a pixel's surroundings in m.plane, a copy of the plane. */
static inline __device__ float surroundings_changed(const image &m, lk_rand_operation operation,
                                                    double signed_magnitude, const lk_pixel_map &map, unsigned i)
{
    int64_t y = i / (unsigned)m.size.width, x = i % (unsigned)m.size.width;
    if (operation != LK_RAND_SHARPNESS)
        return lk__pixel_mapped(m.plane, m.size, &map, y, x);
    bool is_border = y == 0 || x == 0 || y == m.size.height - 1 || x == m.size.width - 1;
    return is_border ? m.plane[i] : lk__color_sharpened(m.plane + i, m.size.width, lk__rand_factor(signed_magnitude));
}

static __device__ void change_plane(const image &m, float *plane, lk_rand_operation operation, double magnitude,
                                    double signed_magnitude, const lk_pixel_map &map, findings &f)
{
    if (operation == LK_RAND_AUTOCONTRAST) {
        stretch(m, plane, f);
    } else if (operation == LK_RAND_EQUALIZE) {
        equalize(m, plane, f);
    } else if (operation == LK_RAND_SHARPNESS || lk__rand_moves(operation)) {
        for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x)
            m.plane[i] = plane[i];
        __syncthreads();
        for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x)
            plane[i] = surroundings_changed(m, operation, signed_magnitude, map, i);
    } else {
        for (unsigned i = threadIdx.x; i < m.pixels; i += blockDim.x)
            plane[i] = value_changed(operation, magnitude, signed_magnitude, plane[i]);
    }
    __syncthreads();
}

static __device__ void apply_rand(const image &m, lk_rand_operation operation, double magnitude, bool negative,
                                  findings &f)
{
    double signed_magnitude = negative ? -magnitude : magnitude;
    lk_pixel_map map = lk__rand_map(operation, signed_magnitude, m.size);
    if (operation == LK_RAND_CONTRAST)
        change_contrast(m, lk__rand_factor(signed_magnitude), f);
    else if (operation == LK_RAND_COLOR)
        change_saturation(m, lk__rand_factor(signed_magnitude));
    else
        for (unsigned c = 0; c < m.channels; c++)
            change_plane(m, m.values + c * m.pixels, operation, magnitude, signed_magnitude, map, f);
}

/* Makes the image in work, up to RandAugment. */
static __device__ void work_on(const call &a, const plan &p, const image &m, const uint8_t *bytes, findings &f)
{
    unsigned width = (unsigned)a.size.width;
    for (unsigned i = threadIdx.x; i < m.channels * m.pixels; i += blockDim.x) {
        unsigned at = i % m.pixels;
        m.values[i] = moved_pixel(a, p, bytes + i - at, at / width, at % width);
    }
    __syncthreads();
    if (a.opts.contrast > 0)
        change_contrast(m, (float)p.choice.contrast, f);
    for (int i = 0; i < LK_RAND_CHOICES && a.opts.rand_augment > 0; i++)
        apply_rand(m, p.choice.rand[i].operation, (double)a.opts.rand_augment / LK_RAND_MAGNITUDES,
                   p.choice.rand[i].negative, f);
}

/* --- images ------------------------------------------------------------------------------------------------------- */

static inline __device__ bool is_cut(int64_t y, int64_t x, int64_t top, int64_t left, int64_t height, int64_t width)
{
    return y >= top && y < top + height && x >= left && x < left + width;
}

/* Normalizes, cuts out and erases. */
static inline __device__ float finished_pixel(const call &a, const lk_augment_choice &c, float value, unsigned channel,
                                              int64_t y, int64_t x)
{
    int64_t side = a.opts.cutout;
    if (side > 0 && is_cut(y, x, c.cutout_y - side / 2, c.cutout_x - side / 2, side, side))
        return 0;
    if (c.erase_height > 0 && is_cut(y, x, c.erase_top, c.erase_left, c.erase_height, c.erase_width))
        return 0;
    return a.moments ? lk__pixel_normalized(value, a.moments[channel], a.moments[a.channels + channel]) : value;
}

/* Makes the image at y, or mixes `share` of what is there with it. A thread writes WIDTH pixels at a time. Pixels are
 * counted in 32 bits, because a division of 64 bits would take longer than the rest. */
template <int WIDTH>
static __device__ void make(const call &a, plan &p, findings &f, int64_t sample, float *y, bool mixes, float share)
{
    unsigned channels = (unsigned)a.channels, width = (unsigned)a.size.width, pixels = (unsigned)a.size.height * width;
    unsigned size = channels * pixels;
    const uint8_t *bytes = a.x + sample * size;
    float *work = a.work ? a.work + (int64_t)blockIdx.x * (size + pixels) : NULL;
    __syncthreads();
    if (threadIdx.x == 0)
        p = choose(a, sample);
    __syncthreads();
    if (work) {
        const image m = {work, work + size, channels, pixels, a.size};
        work_on(a, p, m, bytes, f);
    }
    for (unsigned first = threadIdx.x * WIDTH; first < size; first += blockDim.x * WIDTH) {
        elements<float, WIDTH> made;
        for (unsigned e = 0; e < WIDTH; e++) {
            unsigned i = first + e, channel = a.channels_last ? i % channels : i / pixels;
            unsigned at = a.channels_last ? i / channels : i % pixels;
            float value = work ? work[channel * pixels + at]
                               : moved_pixel(a, p, bytes + channel * pixels, at / width, at % width);
            value = finished_pixel(a, p.choice, value, channel, at / width, at % width);
            made.at[e] = mixes ? lk__pixel_mixed(y[i], value, share) : value;
        }
        *in_one_access<elements<float, WIDTH>>(y + first) = made;
    }
}

template <int WIDTH> static __global__ void prepare_images(call a)
{
    __shared__ plan p;
    __shared__ findings f;
    unsigned size = (unsigned)(a.channels * a.size.height * a.size.width);
    for (int64_t n = blockIdx.x; n < a.n; n += gridDim.x) {
        int64_t sample = a.indices[n];
        float *y = a.y + n * size;
        if (sample < 0 || sample >= a.images) {
            for (unsigned i = threadIdx.x; i < size; i += blockDim.x)
                y[i] = NAN;
            continue;
        }
        make<WIDTH>(a, p, f, sample, y, false, 0);
        if (a.opts.mixup > 0) {
            float share = (float)p.choice.share;
            make<WIDTH>(a, p, f, lk__augment_other(&p.choice, sample, a.images), y, true, share);
        }
    }
}

lk_gpu_status lk__gpu_prepare_images(lk_gpu_stream *stream, const lk_gpu_prepare_images *a)
{
    int64_t size = a->channels * a->size.height * a->size.width;
    if (a->n * size == 0)
        return LK_GPU_OK;
    if (size > INT32_MAX)
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "prepare_images: an image of more than 2^31 - 1 pixels");
    unsigned blocks = (unsigned)lk__min(a->n, a->work ? (int64_t)LK_GPU_IMAGES_IN_WORK : MAX_BLOCKS);
    if (size % 4 == 0 && is_aligned<float, 4>(a->y))
        LK_GPU_RUN_TOGETHER(prepare_images<4>, blocks, THREADS, stream, *a);
    else
        LK_GPU_RUN_TOGETHER(prepare_images<1>, blocks, THREADS, stream, *a);
    return lk__gpu_launched("prepare_images");
}
