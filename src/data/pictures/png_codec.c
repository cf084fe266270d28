/* Reads PNG. Only this file includes libpng. */
#include "data/pictures/codec.h"

#include <string.h>

static bool png_codec_recognizes(const uint8_t *bytes, size_t size)
{
    return size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef LK_HAVE_PNG

#include "base/mem.h"

#include <png.h>

/* No chunk that decoding needs is larger. */
enum { CHUNK_BYTES = 1 << 20, CHUNKS = 1000 };

/* State that survives libpng's longjmp. */
typedef struct reading {
    lk_encoded *encoded;
    size_t position;
    png_structp png;
    png_infop info;
    png_bytep *rows;
    bool out_of_memory;
} reading;

static void png_codec_fail(png_structp png, png_const_charp message)
{
    reading *r = png_get_error_ptr(png);
    if (!r->out_of_memory)
        lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "%s PNG data: %s",
                            r->position >= r->encoded->size ? "truncated or damaged" : "damaged", message);
    png_longjmp(png, 1);
}

static void png_codec_ignore_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp png_codec_allocate(png_structp png, png_alloc_size_t bytes)
{
    void *memory = lk__calloc(1, bytes);
    reading *r = png_get_mem_ptr(png);
    r->out_of_memory |= !memory;
    return memory;
}

static void png_codec_free_memory(png_structp png, png_voidp memory)
{
    (void)png;
    lk__free(memory);
}

static void png_codec_give_bytes(png_structp png, png_bytep bytes, size_t count)
{
    reading *r = png_get_io_ptr(png);
    if (count > r->encoded->size - r->position) {
        r->position = r->encoded->size;
        png_error(png, "the file ends too early");
    }
    memcpy(bytes, r->encoded->bytes + r->position, count);
    r->position += count;
}

static void png_codec_open(reading *r, lk_image *image)
{
    png_set_read_fn(r->png, r, png_codec_give_bytes);
    png_set_user_limits(r->png, INT32_MAX, INT32_MAX); /* the caller checks the size */
    png_set_chunk_malloc_max(r->png, CHUNK_BYTES);
    png_set_chunk_cache_max(r->png, CHUNKS);
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    /* Skip texts and profiles: in a file of 1 MB they may decode to 1 GB. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
#endif
    png_read_info(r->png, r->info);
    bool gray = !(png_get_color_type(r->png, r->info) & PNG_COLOR_MASK_COLOR);
    image->channels = gray ? 1 : 3;
    image->height = png_get_image_height(r->png, r->info);
    image->width = png_get_image_width(r->png, r->info);
}

static void png_codec_read_pixels(reading *r, const lk_image *image, uint8_t *pixels)
{
    png_set_expand(r->png); /* palettes, and gray of 1, 2 and 4 bits */
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

/* libpng reports errors by a longjmp into this function. */
static lk_status png_codec_read_or_jump(reading *r, lk_image *header, uint8_t *pixels)
{
    if (setjmp(png_jmpbuf(r->png)))
        return r->out_of_memory ? lk__encoded_problem(r->encoded, LK_ERR_MEMORY, "out of memory") : LK_ERR_FORMAT;
    png_codec_open(r, header);
    if (pixels)
        png_codec_read_pixels(r, header, pixels);
    return LK_OK;
}

static lk_status png_codec_read(lk_encoded *encoded, lk_image *header, uint8_t *pixels)
{
    reading r = {.encoded = encoded};
    r.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r, png_codec_fail, png_codec_ignore_warning, &r,
                                     png_codec_allocate, png_codec_free_memory);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    lk_status status = r.info ? png_codec_read_or_jump(&r, header, pixels)
                              : lk__encoded_problem(encoded, LK_ERR_MEMORY, "out of memory");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    lk__free(r.rows);
    return status;
}

static const char *png_codec_loaded_version(void)
{
    return png_get_libpng_ver(NULL);
}

const lk_codec lk__png_codec = {.name = "PNG",
                                .recognizes = png_codec_recognizes,
                                .read = png_codec_read,
                                .loaded_version = png_codec_loaded_version};

#else

const lk_codec lk__png_codec = {.name = "PNG", .lacks = "libpng", .recognizes = png_codec_recognizes};

#endif
