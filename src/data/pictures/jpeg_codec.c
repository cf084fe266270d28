/* Reads JPEG. Only this file includes libjpeg. */
#include "data/pictures/codec.h"

#include <stdio.h>
#include <string.h>

static bool jpeg_codec_recognizes(const uint8_t *bytes, size_t size)
{
    return size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0;
}

#ifdef LK_HAVE_JPEG

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>

/* Each scan of a progressive picture is a pass over all pixels, and a small file may hold very many. Real pictures have
 * about ten. */
enum { MAX_SCANS = 200 };

/* State that survives the longjmp out of libjpeg. `errors` must come first: callbacks cast libjpeg's pointer to it. */
typedef struct reading {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    lk_encoded *encoded;
    lk_status status;
    jmp_buf leave;
} reading;

static void jpeg_codec_fail(j_common_ptr jpeg)
{
    reading *r = (reading *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    bool memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    r->status = memory ? LK_ERR_MEMORY : LK_ERR_FORMAT;
    bool cut = jpeg->err->msg_code == JWRN_JPEG_EOF || jpeg->err->msg_code == JERR_INPUT_EOF;
    lk__encoded_problem(r->encoded, r->status, "%sJPEG data: %s", memory ? "" : cut ? "truncated " : "damaged ", text);
    longjmp(r->leave, 1);
}

/* libjpeg only warns about missing or damaged data, and fills in gray; here that is an error. Other warnings are
 * harmless. */
static void jpeg_codec_warn(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_ARITH_BAD_CODE || code == JWRN_BOGUS_PROGRESSION))
        jpeg_codec_fail(jpeg);
}

static void jpeg_codec_count_scans(j_common_ptr jpeg)
{
    reading *r = (reading *)jpeg->err;
    if (r->jpeg.input_scan_number <= MAX_SCANS)
        return;
    r->status = lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "JPEG data of more than %d passes", MAX_SCANS);
    longjmp(r->leave, 1);
}

static void jpeg_codec_open(reading *r, lk_image *image)
{
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = jpeg_codec_count_scans;
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, r->encoded->bytes, r->encoded->size);
    jpeg_read_header(&r->jpeg, TRUE);
    image->channels = r->jpeg.num_components == 1 ? 1 : 3;
    image->height = r->jpeg.image_height;
    image->width = r->jpeg.image_width;
}

/* Returns a * b / 255, rounded. */
static int jpeg_codec_multiply_bytes(int a, int b)
{
    int product = a * b + 128;
    return (product + (product >> 8)) >> 8;
}

/* Converts a row of CMYK to RGB as Pillow does. By Adobe's convention, which all programs follow, a file stores each
 * ink inverted: 255 is no ink. */
static void jpeg_codec_cmyk_to_rgb(const uint8_t *cmyk, int64_t width, uint8_t *rgb)
{
    for (int64_t x = 0; x < width; x++) {
        int light = cmyk[4 * x + 3];
        for (int c = 0; c < 3; c++)
            rgb[3 * x + c] = (uint8_t)(light - jpeg_codec_multiply_bytes(255 - cmyk[4 * x + c], light));
    }
}

static void jpeg_codec_read_pixels(reading *r, const lk_image *image, uint8_t *pixels)
{
    bool inks = r->jpeg.num_components == 4;
    JSAMPARRAY line = NULL; /* freed by libjpeg */
    r->jpeg.out_color_space = image->channels == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    r->jpeg.dct_method = JDCT_ISLOW; /* the same bits with and without vectors */
    r->jpeg.do_fancy_upsampling = TRUE;
    jpeg_start_decompress(&r->jpeg);
    if (inks)
        line = r->jpeg.mem->alloc_sarray((j_common_ptr)&r->jpeg, JPOOL_IMAGE, 4 * r->jpeg.output_width, 1);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row = pixels + (int64_t)r->jpeg.output_scanline * image->width * image->channels;
        jpeg_read_scanlines(&r->jpeg, inks ? line : &row, 1);
        if (inks)
            jpeg_codec_cmyk_to_rgb(*line, image->width, row);
    }
    jpeg_finish_decompress(&r->jpeg);
}

/* libjpeg reports errors by a longjmp into this function. */
static lk_status jpeg_codec_read_or_jump(reading *r, lk_image *header, uint8_t *pixels)
{
    if (setjmp(r->leave))
        return r->status;
    jpeg_codec_open(r, header);
    int components = r->jpeg.num_components;
    if (components != 1 && components != 3 && components != 4)
        return lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "JPEG with %d color components, expected 1, 3 or 4",
                                   components);
    if (pixels)
        jpeg_codec_read_pixels(r, header, pixels);
    return LK_OK;
}

static lk_status jpeg_codec_read(lk_encoded *encoded, lk_image *header, uint8_t *pixels)
{
    reading r = {.encoded = encoded};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = jpeg_codec_fail;
    r.errors.emit_message = jpeg_codec_warn;
    lk_status status = jpeg_codec_read_or_jump(&r, header, pixels);
    jpeg_destroy_decompress(&r.jpeg);
    return status;
}

const lk_codec lk__jpeg_codec = {.name = "JPEG", .recognizes = jpeg_codec_recognizes, .read = jpeg_codec_read};

#else

const lk_codec lk__jpeg_codec = {.name = "JPEG", .lacks = "libjpeg", .recognizes = jpeg_codec_recognizes};

#endif
