#include "data/formats/idx.h"

#include "base/mem.h"
#include "base/status.h"
#include "data/formats/byte_source.h"

#include <string.h>

enum { MAGIC_BYTES = 4, TYPE_U8 = 0x08, FIRST_CAPACITY = 64 * 1024, LIKELY_RATIO = 8 };

static uint32_t idx_big_endian_u32(const uint8_t byte[4])
{
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

static lk_status idx_read(const char *path, lk_byte_source *source, void *bytes, size_t count, size_t *got)
{
    lk_status status = lk__byte_source_read(source, bytes, count, got);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, source->problem);
    return LK_OK;
}

static lk_status idx_read_header(const char *path, lk_byte_source *source, uint8_t *bytes, size_t count)
{
    size_t got;
    LK_TRY(idx_read(path, source, bytes, count, &got));
    if (got < count)
        LK_FAIL(LK_ERR_FORMAT, "%s: truncated: the header ends at offset %zu, expected %zu bytes more", path,
                source->position, count - got);
    return LK_OK;
}

static lk_status idx_read_magic(const char *path, lk_byte_source *source, int min_dims, int max_dims, lk_idx *idx)
{
    uint8_t magic[MAGIC_BYTES];
    LK_TRY(idx_read_header(path, source, magic, sizeof magic));
    if (magic[0] != 0 || magic[1] != 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: is not an IDX file: begins with bytes %02x %02x, expected 00 00", path, magic[0],
                magic[1]);
    if (magic[2] != TYPE_U8)
        LK_FAIL(LK_ERR_FORMAT, "%s: type 0x%02x at offset 2, expected 0x08 (unsigned bytes)", path, magic[2]);
    if (magic[3] >= min_dims && magic[3] <= max_dims) {
        idx->dims = magic[3];
        return LK_OK;
    }
    if (min_dims == max_dims)
        LK_FAIL(LK_ERR_FORMAT, "%s: %d dimensions at offset 3, expected %d", path, magic[3], min_dims);
    LK_FAIL(LK_ERR_FORMAT, "%s: %d dimensions at offset 3, expected %d to %d", path, magic[3], min_dims, max_dims);
}

static lk_status idx_read_dims(const char *path, lk_byte_source *source, lk_idx *idx, size_t *payload)
{
    int64_t product = 1;
    for (int i = 0; i < idx->dims; i++) {
        uint8_t field[4];
        LK_TRY(idx_read_header(path, source, field, sizeof field));
        idx->dim[i] = idx_big_endian_u32(field);
        if (idx->dim[i] == 0)
            LK_FAIL(LK_ERR_FORMAT, "%s: dimension %d at offset %d is zero, expected at least 1", path, i,
                    MAGIC_BYTES + 4 * i);
        if (!lk__mul_i64(product, idx->dim[i], &product) || (uint64_t)product > PTRDIFF_MAX)
            LK_FAIL(LK_ERR_FORMAT, "%s: the product of dimensions 0 to %d exceeds the address space", path, i);
    }
    *payload = (size_t)product;
    return LK_OK;
}

/* A wrong header must not make a small file take much memory: the buffer starts in proportion to the file, and doubles
 * as decoded bytes arrive. */
static lk_status idx_decode(const char *path, lk_byte_source *source, size_t payload, uint8_t **decoded)
{
    size_t capacity = source->size > payload / LIKELY_RATIO ? payload : source->size * LIKELY_RATIO;
    if (capacity < FIRST_CAPACITY)
        capacity = payload < FIRST_CAPACITY ? payload : FIRST_CAPACITY;
    for (size_t have = 0; have < payload;) {
        uint8_t *grown = lk__realloc(*decoded, capacity, 1);
        if (!grown)
            return LK_ERR_MEMORY;
        *decoded = grown;
        size_t got;
        LK_TRY(idx_read(path, source, grown + have, capacity - have, &got));
        have += got;
        if (have < capacity)
            LK_FAIL(LK_ERR_FORMAT, "%s: truncated: the header promises %zu bytes of data, but there are %zu", path,
                    payload, have);
        capacity = capacity > payload / 2 ? payload : 2 * capacity;
    }
    uint8_t extra;
    size_t got;
    LK_TRY(idx_read(path, source, &extra, 1, &got));
    if (got)
        LK_FAIL(LK_ERR_FORMAT, "%s: over-long: decodes to more than the %zu bytes of data that the header promises",
                path, payload);
    return LK_OK;
}

static lk_status idx_check_size(const char *path, const lk_byte_source *source, size_t payload)
{
    size_t there = source->size - source->position;
    if (there < payload)
        LK_FAIL(LK_ERR_FORMAT, "%s: truncated: the header promises %zu bytes of data, but there are %zu", path, payload,
                there);
    if (there > payload)
        LK_FAIL(LK_ERR_FORMAT, "%s: over-long: %zu bytes of data, expected %zu by the header", path, there, payload);
    return LK_OK;
}

static lk_status idx_read_file(const char *path, lk_byte_source *source, int min_dims, int max_dims, lk_idx *idx)
{
    size_t payload = 0;
    LK_TRY(idx_read_magic(path, source, min_dims, max_dims, idx));
    LK_TRY(idx_read_dims(path, source, idx, &payload));
    if (source->gzip) {
        LK_TRY(idx_decode(path, source, payload, &idx->decoded));
        idx->data = idx->decoded;
    } else {
        LK_TRY(idx_check_size(path, source, payload));
        idx->mapping = source->bytes;
        idx->mapping_size = source->size;
        idx->data = source->bytes + source->position;
    }
    return LK_OK;
}

lk_status lk__idx_open(const char *path, int min_dims, int max_dims, lk_idx *idx)
{
    memset(idx, 0, sizeof *idx);
    lk_byte_source source;
    lk_status status = lk__byte_source_open(path, &source);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, source.problem);
    status = idx_read_file(path, &source, min_dims, max_dims, idx);
    if (status == LK_OK && idx->mapping) {
        lk__byte_source_close_keep_mapping(&source);
        return LK_OK;
    }
    lk__byte_source_close(&source);
    if (status != LK_OK)
        lk__idx_close(idx);
    return status;
}

void lk__idx_close(lk_idx *idx)
{
    lk__byte_source_unmap(idx->mapping, idx->mapping_size);
    lk__free(idx->decoded);
    memset(idx, 0, sizeof *idx);
}
