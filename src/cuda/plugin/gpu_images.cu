/* Makes augmented and normalized images from the bytes of a data set in the GPU's memory, in one pass. Each pixel is
 * rounded as in ops/augmentation.c, in the same order, so it has the same bits. */
#include "cuda/plugin/gpu.cuh"

/* The augmentation of one image, as lk_augment_choice. */
typedef struct choice {
    bool shifted, flipped, cut;
    int64_t row, column;           /* the shift's whole pixels */
    float row_share, column_share; /* the shift's fraction of a pixel */
    int64_t crop_down, crop_right;
    int64_t top, left; /* of the square that is cut out */
} choice;

static inline __device__ void draw_words(lk_gpu_philox start, int64_t epoch, int64_t sample, uint32_t words[4])
{
    start.counter[2] = (uint32_t)epoch;
    start.counter[3] = (uint32_t)((uint64_t)sample >> 32) ^ (uint32_t)((uint64_t)epoch >> 32);
    philox(start, 0, (uint32_t)sample, words);
}

static inline __device__ double shift_pixels(uint32_t word, double share, int64_t size)
{
    return ((double)word * 0x1p-31 - 1.0) * share * (double)size;
}

/* Uniform in [0, bound), with a bias of at most bound / 2^32. */
static inline __device__ int64_t word_below(uint32_t word, int64_t bound)
{
    return (int64_t)((uint64_t)word * (uint64_t)bound >> 32);
}

static inline __device__ choice draw_choice(const lk_gpu_prepare_images &a, int64_t sample)
{
    choice c = {};
    int64_t epoch = *a.epoch;
    uint32_t words[4];
    if (a.height_shift > 0 || a.width_shift > 0) {
        draw_words(a.shift_words, epoch, sample, words);
        double down = shift_pixels(words[0], a.height_shift, a.height),
               right = shift_pixels(words[1], a.width_shift, a.width);
        c.shifted = down != 0 || right != 0;
        c.row = (int64_t)floor(down);
        c.column = (int64_t)floor(right);
        c.row_share = (float)(down - floor(down));
        c.column_share = (float)(right - floor(right));
    }
    if (a.flip) {
        draw_words(a.flip_words, epoch, sample, words);
        c.flipped = words[0] >> 31;
    }
    if (a.crop_padding > 0) {
        draw_words(a.crop_words, epoch, sample, words);
        c.crop_down = word_below(words[0], 2 * a.crop_padding + 1) - a.crop_padding;
        c.crop_right = word_below(words[1], 2 * a.crop_padding + 1) - a.crop_padding;
    }
    if (a.cutout > 0) {
        draw_words(a.cutout_words, epoch, sample, words);
        c.cut = true;
        c.top = word_below(words[0], a.height) - a.cutout / 2;
        c.left = word_below(words[1], a.width) - a.cutout / 2;
    }
    return c;
}

static inline __device__ int64_t clamp_index(int64_t value, int64_t count)
{
    return value < 0 ? 0 : value < count ? value : count - 1;
}

static inline __device__ float interpolate(float a, float b, float share)
{
    return a + share * (b - a);
}

static inline __device__ float from_byte(uint8_t byte)
{
    return (float)byte / 255.0f;
}

/* Interpolates between four pixels: first between two rows in each of two columns, then between the columns. */
static inline __device__ float shifted_pixel(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *plane,
                                             int64_t y, int64_t x)
{
    const uint8_t *upper = plane + clamp_index(y + c.row, a.height) * a.width;
    const uint8_t *lower = plane + clamp_index(y + c.row + 1, a.height) * a.width;
    int64_t i = clamp_index(x + c.column, a.width), j = clamp_index(x + c.column + 1, a.width);
    float left = interpolate(from_byte(upper[i]), from_byte(lower[i]), c.row_share);
    float right = interpolate(from_byte(upper[j]), from_byte(lower[j]), c.row_share);
    return interpolate(left, right, c.column_share);
}

/* A pixel before normalization and cutout. */
static inline __device__ float moved_pixel(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *plane,
                                           int64_t y, int64_t x)
{
    y += c.crop_down;
    x += c.crop_right;
    if (y < 0 || y >= a.height || x < 0 || x >= a.width)
        return 0;
    if (c.flipped)
        x = a.width - 1 - x;
    return c.shifted ? shifted_pixel(a, c, plane, y, x) : from_byte(plane[y * a.width + x]);
}

static inline __device__ float prepared_pixel(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *image,
                                              int64_t channel, int64_t y, int64_t x)
{
    if (c.cut && y >= c.top && y < c.top + a.cutout && x >= c.left && x < c.left + a.cutout)
        return 0;
    float value = moved_pixel(a, c, image + channel * a.height * a.width, y, x);
    return a.moments ? (value - a.moments[channel]) / a.moments[a.channels + channel] : value;
}

/* One block for each image: its first thread draws the random choice, then all threads loop over the pixels. These are
 * counted in 32 bits, because a division of 64 bits would take longer than the rest. */
static __global__ void prepare_images(lk_gpu_prepare_images a)
{
    __shared__ choice c;
    unsigned channels = (unsigned)a.channels, width = (unsigned)a.width, pixels = (unsigned)a.height * width;
    unsigned size = channels * pixels;
    for (int64_t n = blockIdx.x; n < a.n; n += gridDim.x) {
        int64_t sample = a.indices[n];
        bool inside = sample >= 0 && sample < a.images;
        if (threadIdx.x == 0)
            c = draw_choice(a, sample);
        __syncthreads();
        for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
            unsigned channel = a.channels_last ? i % channels : i / pixels;
            unsigned at = a.channels_last ? i / channels : i % pixels;
            a.y[n * size + i] =
                inside ? prepared_pixel(a, c, a.x + sample * size, channel, at / width, at % width) : NAN;
        }
        __syncthreads();
    }
}

lk_gpu_status lk__gpu_prepare_images(lk_gpu_stream *stream, const lk_gpu_prepare_images *a)
{
    if (a->n * a->channels * a->height * a->width == 0)
        return LK_GPU_OK;
    if (a->channels * a->height * a->width > INT32_MAX)
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "prepare_images: an image of more than 2^31 - 1 pixels");
    unsigned blocks = (unsigned)(a->n < MAX_BLOCKS ? a->n : MAX_BLOCKS);
    LK_GPU_RUN_TOGETHER(prepare_images, blocks, THREADS, stream->stream, *a);
    return lk__gpu_launched("prepare_images");
}
