/* Reads pictures: the header alone, the whole picture, and resized. The results must agree. */
#include "fuzz.h"

#include "lockstep/image.h"

#include <string.h>
#include <zlib.h>

/* --- mutations of PNG --------------------------------------------------------------------------------------------- */

/* A chunk: its length, type, data and checksum (www.w3.org/TR/png/#5Chunk-layout). */
enum { SIGNATURE = 8, FRAME = 12, MOST_CHUNKS = 32, MOST_PIXELS = 1 << 18 };

typedef struct chunk {
    size_t begin, length; /* of all of it, and of its data */
} chunk;

static uint32_t png_number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void png_put_number(uint8_t *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(number >> 8 * (3 - i));
}

/* Returns the number of chunks; 0: it is no PNG file. */
static int png_list(const uint8_t *data, size_t size, chunk chunks[MOST_CHUNKS])
{
    int n = 0;
    size_t at = SIGNATURE;
    if (size < SIGNATURE || memcmp(data, "\211PNG\r\n\032\n", SIGNATURE) != 0)
        return 0;
    while (n < MOST_CHUNKS && size - at >= FRAME && png_number(data + at) <= size - at - FRAME) {
        chunks[n] = (chunk){at, png_number(data + at)};
        at += FRAME + chunks[n++].length;
    }
    return n;
}

/* Replaces a chunk's data, and sets its length and checksum; returns the file's new size. */
static size_t png_replace(uint8_t *data, size_t size, size_t most, chunk c, const uint8_t *with, size_t length)
{
    size_t end = c.begin + FRAME + c.length;
    uint8_t *at = data + c.begin;
    if (size - c.length + length > most)
        return size;
    memmove(at + FRAME + length, data + end, size - end);
    memcpy(at + 8, with, length);
    png_put_number(at, (uint32_t)length);
    png_put_number(at + 8 + length, (uint32_t)crc32(0, at + 4, (unsigned)length + 4));
    return size - c.length + length;
}

/* Mutates what the chunk's data are compressed from, filter bytes and pixels; returns the file's new size. */
static size_t png_mutate_pixels(uint8_t *data, size_t size, size_t most, chunk c)
{
    static uint8_t pixels[MOST_PIXELS], packed[MOST_PIXELS + MOST_PIXELS / 100 + 64];
    uLongf n = sizeof pixels, n_packed = sizeof packed;
    if (uncompress(pixels, &n, data + c.begin + 8, c.length) != Z_OK)
        return size;
    n = LLVMFuzzerMutate(pixels, n, sizeof pixels);
    return compress(packed, &n_packed, pixels, n) == Z_OK ? png_replace(data, size, most, c, packed, n_packed) : size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    static uint8_t changed[1 << 16];
    chunk chunks[MOST_CHUNKS];
    int n = png_list(data, size, chunks);
    if (n == 0 || seed % 8 == 0)
        return LLVMFuzzerMutate(data, size, most);
    chunk c = chunks[seed / 8 % (unsigned)n];
    if (memcmp(data + c.begin + 4, "IDAT", 4) == 0 && seed % 2)
        return png_mutate_pixels(data, size, most, c);
    if (c.length > sizeof changed)
        return size;
    memcpy(changed, data + c.begin + 8, c.length);
    size_t room = c.length + 64 < sizeof changed ? c.length + 64 : sizeof changed;
    return png_replace(data, size, most, c, changed, LLVMFuzzerMutate(changed, c.length, room));
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void resize(const uint8_t *data, size_t size, const lk_image *whole)
{
    lk_image small;
    lk_image_opts opts = {.channels = 3, .height = 28, .width = 28};
    if (!fuzz_went_well(lk_image_decode(data, size, "input", &opts, &small)))
        return;
    FUZZ_CHECK(whole->pixels && small.channels == 3 && small.height == 28 && small.width == 28);
    fuzz_touch(small.pixels, 3 * 28 * 28);
    lk_image_free(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_image header, whole = {0};
    bool is_picture = fuzz_went_well(lk_image_read_header(fuzz_file(data, size), &header));
    /* Larger pictures take too long for thousands of runs. */
    if (is_picture && header.height * header.width > 1 << 18)
        return 0;
    if (!fuzz_went_well(lk_image_decode(data, size, "input", NULL, &whole)))
        return 0;
    FUZZ_CHECK(is_picture && whole.channels == header.channels && whole.height == header.height &&
               whole.width == header.width);
    fuzz_touch(whole.pixels, (size_t)(whole.channels * whole.height * whole.width));
    resize(data, size, &whole);
    lk_image_free(&whole);
    return 0;
}
