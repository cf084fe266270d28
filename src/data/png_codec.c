/* PNG by libpng: the only file that knows it. */
#include "data/codec.h"

#include <string.h>

static bool recognises(const uint8_t *bytes, size_t size)
{
    return size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef LK_HAVE_PNG

#include "base/mem.h"

#include <png.h>

/* No chunk of a picture that is of use here is larger. */
enum { CHUNK_BYTES = 1 << 20, CHUNKS = 1000 };

/* What lives across libpng's longjmp. */
typedef struct reading {
    lk__encoded *encoded;
    size_t position;
    png_structp png;
    png_infop info;
    png_bytep *rows;
    bool out_of_memory;
} reading;

static void take_error(png_structp png, png_const_charp message)
{
    reading *r = png_get_error_ptr(png);
    if (!r->out_of_memory)
        lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "%s PNG data: %s",
                            r->position >= r->encoded->size ? "truncated or damaged" : "damaged", message);
    png_longjmp(png, 1);
}

static void take_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp take_memory(png_structp png, png_alloc_size_t bytes)
{
    void *memory = lk__calloc(1, bytes);
    reading *r = png_get_mem_ptr(png);
    r->out_of_memory |= !memory;
    return memory;
}

static void free_memory(png_structp png, png_voidp memory)
{
    (void)png;
    lk__free(memory);
}

static void give_bytes(png_structp png, png_bytep bytes, size_t count)
{
    reading *r = png_get_io_ptr(png);
    if (count > r->encoded->size - r->position) {
        r->position = r->encoded->size;
        png_error(png, "the file ends too early");
    }
    memcpy(bytes, r->encoded->bytes + r->position, count);
    r->position += count;
}

static lk_status begin(reading *r)
{
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, take_error, take_warning, r, take_memory, free_memory);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    return r->info ? LK_OK : lk__encoded_problem(r->encoded, LK_ERR_MEMORY, "out of memory");
}

static void end(reading *r)
{
    png_destroy_read_struct(&r->png, &r->info, NULL);
    lk__free(r->rows);
}

static void read_header(reading *r, lk_image *image)
{
    png_set_read_fn(r->png, r, give_bytes);
    png_set_user_limits(r->png, INT32_MAX, INT32_MAX); /* the caller says what is too large */
    png_set_chunk_malloc_max(r->png, CHUNK_BYTES);
    png_set_chunk_cache_max(r->png, CHUNKS);
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    /* Texts and profiles of a file of 1 MB may decode to 1 GB. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
#endif
    png_read_info(r->png, r->info);
    bool grey = !(png_get_color_type(r->png, r->info) & PNG_COLOR_MASK_COLOR);
    image->channels = grey ? 1 : 3;
    image->height = png_get_image_height(r->png, r->info);
    image->width = png_get_image_width(r->png, r->info);
}

static void read_pixels(reading *r, const lk_image *image, uint8_t *pixels)
{
    png_set_expand(r->png); /* palettes, and grey of 1, 2 and 4 bits */
    png_set_scale_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != (size_t)(image->width * image->channels))
        png_error(r->png, "rows of an unexpected length");
    r->rows = lk__calloc((size_t)image->height, sizeof *r->rows);
    r->out_of_memory |= !r->rows;
    if (!r->rows)
        png_error(r->png, "out of memory");
    for (int64_t y = 0; y < image->height; y++)
        r->rows[y] = pixels + y * image->width * image->channels;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
}

static lk_status failed(const reading *r)
{
    return r->out_of_memory ? lk__encoded_problem(r->encoded, LK_ERR_MEMORY, "out of memory") : LK_ERR_FORMAT;
}

/* With `pixels` those of the header's sizes too. */
static lk_status read_png(reading *r, lk_image *header, uint8_t *pixels)
{
    if (setjmp(png_jmpbuf(r->png)))
        return failed(r);
    read_header(r, header);
    if (pixels)
        read_pixels(r, header, pixels);
    return LK_OK;
}

static lk_status examine(lk__encoded *encoded, lk_image *image)
{
    reading r = {.encoded = encoded};
    lk_status status = begin(&r);
    if (status == LK_OK)
        status = read_png(&r, image, NULL);
    end(&r);
    return status;
}

static lk_status decode(lk__encoded *encoded, const lk_image *image, uint8_t *pixels)
{
    reading r = {.encoded = encoded};
    lk_image header = *image;
    lk_status status = begin(&r);
    if (status == LK_OK)
        status = read_png(&r, &header, pixels);
    end(&r);
    return status;
}

const lk__codec lk__png_codec = {.name = "PNG", .recognises = recognises, .examine = examine, .decode = decode};

#else

const lk__codec lk__png_codec = {.name = "PNG", .lacks = "libpng", .recognises = recognises};

#endif
