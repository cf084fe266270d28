#include "io/safetensors_write.h"

#include "base/status.h"
#include "io/durable.h"
#include "io/json.h"
#include "io/safetensors.h"

enum { ALIGNMENT = 64 }; /* the first element's, so that a mapped file can be used as it is */

static void safetensors_put_entry(lk_bytes *header, const lk_safetensors_entry *entry, int64_t *end)
{
    lk__json_open(header, entry->name, '{');
    lk__json_field(header, LK_TEXT("dtype", "F32"));
    lk__json_open(header, "shape", '[');
    for (int i = 0; i < entry->shape.ndim; i++)
        lk__json_field(header, LK_INT(NULL, entry->shape.dim[i]));
    lk__json_close(header, ']');
    lk__json_open(header, "data_offsets", '[');
    lk__json_field(header, LK_INT(NULL, *end));
    *end += lk_shape_count(entry->shape) * (int64_t)sizeof(float);
    lk__json_field(header, LK_INT(NULL, *end));
    lk__json_close(header, ']');
    lk__json_close(header, '}');
}

/* Makes the header, preceded by its length. */
static lk_status safetensors_make_header(const lk_safetensors_entry *entries, int n, const char *const *metadata,
                                         lk_bytes *header)
{
    unsigned char prefix[8] = {0};
    int64_t end = 0;
    lk__bytes_put(header, prefix, sizeof prefix - 1);
    lk__bytes_char(header, '\n'); /* after '\n' lk__json_open writes no comma; the length overwrites it below */
    lk__json_open(header, NULL, '{');
    if (metadata) {
        lk__json_open(header, "__metadata__", '{');
        for (; metadata[0]; metadata += 2)
            lk__json_field(header, LK_TEXT(metadata[0], metadata[1]));
        lk__json_close(header, '}');
    }
    for (int i = 0; i < n; i++)
        safetensors_put_entry(header, &entries[i], &end);
    lk__json_close(header, '}');
    while (header->size % ALIGNMENT != 0 && !header->failed)
        lk__bytes_char(header, ' ');
    LK_TRY(lk__bytes_status(header));
    uint64_t length = header->size - sizeof prefix;
    if (length > LK_SAFETENSORS_MAX_HEADER)
        LK_FAIL(LK_ERR_UNSUPPORTED, "safetensors: a header of %llu bytes for %d tensors; at most %d can be read",
                (unsigned long long)length, n, LK_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; i++)
        header->data[i] = (unsigned char)(length >> (8 * i));
    return LK_OK;
}

static lk_status safetensors_write_tensors(lk_durable_file *file, const lk_bytes *header,
                                           const lk_safetensors_entry *entries, int n)
{
    LK_TRY(lk__durable_put(file, header->data, header->size));
    for (int i = 0; i < n; i++)
        LK_TRY(lk__durable_put(file, entries[i].values,
                               (size_t)lk_shape_count(entries[i].shape) * sizeof *entries[i].values));
    return LK_OK;
}

lk_status lk__safetensors_write(const char *path, const lk_safetensors_entry *entries, int n,
                                const char *const *metadata, int64_t *bytes, uint64_t *hash)
{
    lk_bytes header = {0};
    lk_durable_file file = {0};
    lk_status status = safetensors_make_header(entries, n, metadata, &header);
    if (status == LK_OK)
        status = lk__durable_open(&file, path);
    if (status == LK_OK)
        status = safetensors_write_tensors(&file, &header, entries, n);
    *bytes = file.bytes;
    if (status == LK_OK)
        status = lk__durable_finish(&file, hash);
    lk__durable_abandon(&file);
    lk__bytes_free(&header);
    return status;
}
