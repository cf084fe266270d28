/* Reads PGM and PPM. A file is "P2", "P3", "P5" or "P6", then width, height and the largest value as decimal numbers,
 * then the values: decimal numbers in P2 and P3; otherwise bytes, or pairs of bytes if the largest value is
 * above 255. */
#include "data/pictures/codec.h"

enum { LARGEST = 65535, MAX_DIGITS = 9 };

typedef struct reading {
    lk_encoded *encoded;
    size_t position;
    bool text;
    int64_t largest;
} reading;

static bool pnm_codec_recognizes(const uint8_t *bytes, size_t size)
{
    return size >= 3 && bytes[0] == 'P' && (bytes[1] == '2' || bytes[1] == '3' || bytes[1] == '5' || bytes[1] == '6') &&
           (bytes[2] == ' ' || bytes[2] == '#' || (bytes[2] >= '\t' && bytes[2] <= '\r'));
}

static bool pnm_codec_is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static void pnm_codec_skip_space(reading *r)
{
    const lk_encoded *e = r->encoded;
    while (r->position < e->size && (pnm_codec_is_space(e->bytes[r->position]) || e->bytes[r->position] == '#')) {
        if (e->bytes[r->position] == '#')
            while (r->position < e->size && e->bytes[r->position] != '\n')
                r->position++;
        else
            r->position++;
    }
}

static lk_status pnm_codec_read_number(reading *r, const char *what, int64_t largest, int64_t *number)
{
    lk_encoded *e = r->encoded;
    pnm_codec_skip_space(r);
    size_t first = r->position;
    int64_t value = 0;
    *number = 0;
    for (; r->position < e->size && r->position - first < MAX_DIGITS; r->position++) {
        uint8_t byte = e->bytes[r->position];
        if (byte < '0' || byte > '9')
            break;
        value = 10 * value + (byte - '0');
    }
    if (r->position == first)
        return lk__encoded_problem(e, LK_ERR_FORMAT, "%s: no %s at offset %zu",
                                   first == e->size ? "truncated PGM or PPM data" : "damaged PGM or PPM data", what,
                                   first);
    if (r->position < e->size && e->bytes[r->position] >= '0' && e->bytes[r->position] <= '9')
        return lk__encoded_problem(e, LK_ERR_FORMAT, "%s at offset %zu: more than %d digits", what, first, MAX_DIGITS);
    if (value > largest)
        return lk__encoded_problem(e, LK_ERR_FORMAT, "%s %lld at offset %zu: expected at most %lld", what,
                                   (long long)value, first, (long long)largest);
    *number = value;
    return LK_OK;
}

static lk_status pnm_codec_read_header(reading *r, lk_image *image)
{
    lk_encoded *e = r->encoded;
    char kind = (char)e->bytes[1];
    r->text = kind == '2' || kind == '3';
    r->position = 2;
    image->channels = kind == '2' || kind == '5' ? 1 : 3;
    lk_status status = pnm_codec_read_number(r, "width", INT32_MAX, &image->width);
    if (status == LK_OK)
        status = pnm_codec_read_number(r, "height", INT32_MAX, &image->height);
    if (status == LK_OK)
        status = pnm_codec_read_number(r, "largest value", LARGEST, &r->largest);
    if (status != LK_OK)
        return status;
    if (image->width < 1 || image->height < 1 || r->largest < 1)
        return lk__encoded_problem(e, LK_ERR_FORMAT,
                                   "PGM or PPM of %lldx%lld pixels of values up to %lld: expected "
                                   "at least 1",
                                   (long long)image->width, (long long)image->height, (long long)r->largest);
    if (r->position < e->size && !pnm_codec_is_space(e->bytes[r->position]) && !r->text)
        return lk__encoded_problem(e, LK_ERR_FORMAT, "no white space at offset %zu, behind the largest value",
                                   r->position);
    r->position++; /* exactly one space follows */
    return LK_OK;
}

static uint8_t pnm_codec_to_byte(const reading *r, int64_t value)
{
    if (r->largest < 1 || value > r->largest)
        return UINT8_MAX;
    return (uint8_t)(r->largest == UINT8_MAX ? value : (value * UINT8_MAX + r->largest / 2) / r->largest);
}

static lk_status pnm_codec_read(lk_encoded *encoded, lk_image *header, uint8_t *pixels)
{
    reading r = {.encoded = encoded};
    lk_status status = pnm_codec_read_header(&r, header);
    if (status != LK_OK || !pixels)
        return status;
    int64_t values = header->height * header->width * header->channels;
    for (int64_t i = 0; i < values && r.text; i++) {
        int64_t value;
        status = pnm_codec_read_number(&r, "value", r.largest, &value);
        if (status != LK_OK)
            return status;
        pixels[i] = pnm_codec_to_byte(&r, value);
    }
    if (r.text)
        return LK_OK;
    size_t bytes = r.largest > UINT8_MAX ? 2 : 1;
    size_t there = r.position < encoded->size ? encoded->size - r.position : 0;
    if (there < (size_t)values * bytes)
        return lk__encoded_problem(
            encoded, LK_ERR_FORMAT,
            "truncated PGM or PPM data: the header promises %zu bytes of pixels, but there are %zu",
            (size_t)values * bytes, there);
    const uint8_t *from = encoded->bytes + r.position;
    for (int64_t i = 0; i < values; i++, from += bytes)
        pixels[i] = pnm_codec_to_byte(&r, bytes == 2 ? from[0] << 8 | from[1] : from[0]);
    return LK_OK;
}

const lk_codec lk__pnm_codec = {.name = "PGM or PPM", .recognizes = pnm_codec_recognizes, .read = pnm_codec_read};
