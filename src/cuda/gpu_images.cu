/* Batches of a data set that lives on the GPU: bytes become augmented and normalised images in one pass. A pixel goes
 * through the roundings of ops/augmentation.c in their order, so it has the same bits. */
#include "cuda/gpu.cuh"

/* What happens to one image: lk__augment_choice. */
typedef struct choice {
    bool shifted, flipped, cut;
    int64_t row, column; /* of the shift: whole pixels, and what is left of one */
    float row_share, column_share;
    int64_t crop_down, crop_right;
    int64_t top, left; /* of the square that is cut out */
} choice;

static inline __device__ void draw(lk_gpu_philox start, int64_t epoch, int64_t sample, uint32_t words[4])
{
    start.counter[2] = (uint32_t)epoch;
    start.counter[3] = (uint32_t)((uint64_t)sample >> 32) ^ (uint32_t)((uint64_t)epoch >> 32);
    philox(start, 0, (uint32_t)sample, words);
}

static inline __device__ double shift_of(uint32_t word, double share, int64_t size)
{
    return ((double)word * 0x1p-31 - 1.0) * share * (double)size;
}

/* Uniform in [0, bound), but for bound / 2^32. */
static inline __device__ int64_t below(uint32_t word, int64_t bound)
{
    return (int64_t)((uint64_t)word * (uint64_t)bound >> 32);
}

static inline __device__ choice choose(const lk_gpu_prepare_images &a, int64_t sample)
{
    choice c = {};
    int64_t epoch = *a.epoch;
    uint32_t words[4];
    if (a.height_shift > 0 || a.width_shift > 0) {
        draw(a.shift_words, epoch, sample, words);
        double down = shift_of(words[0], a.height_shift, a.height), right = shift_of(words[1], a.width_shift, a.width);
        c.shifted = down != 0 || right != 0;
        c.row = (int64_t)floor(down);
        c.column = (int64_t)floor(right);
        c.row_share = (float)(down - floor(down));
        c.column_share = (float)(right - floor(right));
    }
    if (a.flip) {
        draw(a.flip_words, epoch, sample, words);
        c.flipped = words[0] >> 31;
    }
    if (a.crop_padding > 0) {
        draw(a.crop_words, epoch, sample, words);
        c.crop_down = below(words[0], 2 * a.crop_padding + 1) - a.crop_padding;
        c.crop_right = below(words[1], 2 * a.crop_padding + 1) - a.crop_padding;
    }
    if (a.cutout > 0) {
        draw(a.cutout_words, epoch, sample, words);
        c.cut = true;
        c.top = below(words[0], a.height) - a.cutout / 2;
        c.left = below(words[1], a.width) - a.cutout / 2;
    }
    return c;
}

static inline __device__ int64_t clamp(int64_t value, int64_t count)
{
    return value < 0 ? 0 : value < count ? value : count - 1;
}

static inline __device__ float between(float a, float b, float share)
{
    return a + share * (b - a);
}

static inline __device__ float from_byte(uint8_t byte)
{
    return (float)byte / 255.0f;
}

/* Between four neighbours: first between two rows, in two columns, then between the columns. */
static inline __device__ float shifted(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *plane, int64_t y,
                                       int64_t x)
{
    const uint8_t *upper = plane + clamp(y + c.row, a.height) * a.width;
    const uint8_t *lower = plane + clamp(y + c.row + 1, a.height) * a.width;
    int64_t i = clamp(x + c.column, a.width), j = clamp(x + c.column + 1, a.width);
    float left = between(from_byte(upper[i]), from_byte(lower[i]), c.row_share);
    float right = between(from_byte(upper[j]), from_byte(lower[j]), c.row_share);
    return between(left, right, c.column_share);
}

/* Before it is normalised and cut out. */
static inline __device__ float moved(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *plane, int64_t y,
                                     int64_t x)
{
    y += c.crop_down;
    x += c.crop_right;
    if (y < 0 || y >= a.height || x < 0 || x >= a.width)
        return 0;
    if (c.flipped)
        x = a.width - 1 - x;
    return c.shifted ? shifted(a, c, plane, y, x) : from_byte(plane[y * a.width + x]);
}

static inline __device__ float pixel(const lk_gpu_prepare_images &a, const choice &c, const uint8_t *image,
                                     int64_t channel, int64_t y, int64_t x)
{
    if (c.cut && y >= c.top && y < c.top + a.cutout && x >= c.left && x < c.left + a.cutout)
        return 0;
    float value = moved(a, c, image + channel * a.height * a.width, y, x);
    return a.moments ? (value - a.moments[channel]) / a.moments[a.channels + channel] : value;
}

/* A block an image: its first thread draws, and all of them go over the pixels. 32 bits count those: a division of 64
 * takes longer than the rest. */
static __global__ void prepare_images(lk_gpu_prepare_images a)
{
    __shared__ choice c;
    unsigned channels = (unsigned)a.channels, width = (unsigned)a.width, pixels = (unsigned)a.height * width;
    unsigned size = channels * pixels;
    for (int64_t n = blockIdx.x; n < a.n; n += gridDim.x) {
        int64_t sample = a.indices[n];
        bool inside = sample >= 0 && sample < a.images;
        if (threadIdx.x == 0)
            c = choose(a, sample);
        __syncthreads();
        for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
            unsigned channel = a.channels_last ? i % channels : i / pixels;
            unsigned at = a.channels_last ? i / channels : i % pixels;
            a.y[n * size + i] = inside ? pixel(a, c, a.x + sample * size, channel, at / width, at % width) : NAN;
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
