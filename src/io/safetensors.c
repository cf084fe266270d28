#include "io/safetensors.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "base/refcount.h"
#include "base/quote.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct lk_safetensors {
    lk_refcount references;
    char *path;
    int fd;              /* -1: only a header, or the whole file is in memory */
    unsigned char *data; /* [size]; NULL: not in memory */
    int64_t size;
    json_t *header;
    lk_safetensor *tensors; /* in the order of their elements */
    int n;
};

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
              {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}};

/* --- a tensor ----------------------------------------------------------------------------------------------------- */

static lk_status safetensors_parse_dtype(const char *path, const char *name, const json_t *value, lk_safetensor *t,
                                         int *bytes)
{
    const char *text = json_string_value(value);
    char quoted[LK_QUOTED];
    for (size_t i = 0; text && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            t->dtype = dtypes[i].name;
            *bytes = dtypes[i].bytes;
            return LK_OK;
        }
    }
    LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: dtype '%s'; expected one like F32", path, name,
            text ? lk__quote(text, quoted) : "");
}

static lk_status safetensors_parse_shape(const char *path, const char *name, const json_t *value, lk_safetensor *t)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > LK_MAX_DIMS)
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: the shape has %zu axes; expected a list of at most %d", path, name, n,
                LK_MAX_DIMS);
    t->shape.ndim = (int)n;
    t->count = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(value, i);
        t->shape.dim[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || t->shape.dim[i] < 0)
            LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: axis %zu of its shape is no size; expected 0 or more", path, name,
                    i);
        if (!lk__mul_i64(t->count, t->shape.dim[i], &t->count))
            LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: its shape has more elements than there can be", path, name);
    }
    return LK_OK;
}

/* data_offsets count from the end of the header, which `data` bytes follow. */
static lk_status safetensors_parse_offsets(const char *path, const char *name, const json_t *value, int64_t data,
                                           lk_safetensor *t)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: data_offsets are not two numbers", path, name);
    if (from < 0 || from > to || to > data)
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: data_offsets %lld to %lld; there are %lld bytes behind the header", path,
                name, (long long)from, (long long)to, (long long)data);
    if (to - from != t->bytes)
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: data_offsets span %lld bytes, and its dtype and shape need %lld", path,
                name, (long long)(to - from), (long long)t->bytes);
    t->begin = from;
    return LK_OK;
}

static lk_status safetensors_parse_tensor(const char *path, const char *key, const json_t *value, int64_t data,
                                          lk_safetensor *t)
{
    char name[LK_QUOTED];
    int bytes = 0;
    lk__quote(key, name);
    t->name = key;
    if (!json_is_object(value) || json_object_size(value) != 3)
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: expected an object with dtype, shape and data_offsets", path, name);
    LK_TRY(safetensors_parse_dtype(path, name, json_object_get(value, "dtype"), t, &bytes));
    LK_TRY(safetensors_parse_shape(path, name, json_object_get(value, "shape"), t));
    if (!lk__mul_i64(t->count, bytes, &t->bytes))
        LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: its shape has more bytes than there can be", path, name);
    return safetensors_parse_offsets(path, name, json_object_get(value, "data_offsets"), data, t);
}

/* --- the header --------------------------------------------------------------------------------------------------- */

static lk_status safetensors_check_metadata(const char *path, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        LK_FAIL(LK_ERR_FORMAT, "%s: __metadata__ is no object", path);
    json_object_foreach(metadata, key, value) if (!json_is_string(value))
        LK_FAIL(LK_ERR_FORMAT, "%s: __metadata__ holds something other than texts", path);
    return LK_OK;
}

static int safetensors_compare_offsets(const void *a, const void *b)
{
    const lk_safetensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors must fill the file without gaps or overlaps, so that no byte belongs to two tensors or to none. */
static lk_status safetensors_check_layout(const lk_safetensors *file, int64_t data)
{
    char name[LK_QUOTED];
    int64_t end = 0;
    for (int i = 0; i < file->n; i++) {
        const lk_safetensor *t = &file->tensors[i];
        if (t->begin != end)
            LK_FAIL(LK_ERR_FORMAT, "%s: tensor %s: begins at byte %lld, and the one before it ends at %lld", file->path,
                    lk__quote(t->name, name), (long long)t->begin, (long long)end);
        end = t->begin + t->bytes;
    }
    if (end != data)
        LK_FAIL(LK_ERR_FORMAT, "%s: %lld bytes behind the header, and the tensors have %lld", file->path,
                (long long)data, (long long)end);
    return LK_OK;
}

static lk_status safetensors_parse_tensors(lk_safetensors *file, int64_t header, int64_t data)
{
    const char *key;
    json_t *value;
    file->tensors = lk__calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return LK_ERR_MEMORY;
    json_object_foreach(file->header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            LK_TRY(safetensors_check_metadata(file->path, value));
        else
            LK_TRY(safetensors_parse_tensor(file->path, key, value, data, &file->tensors[file->n++]));
    }
    if (file->n > 0)
        qsort(file->tensors, (size_t)file->n, sizeof *file->tensors, safetensors_compare_offsets);
    LK_TRY(safetensors_check_layout(file, data));
    for (int i = 0; i < file->n; i++)
        file->tensors[i].begin += (int64_t)sizeof(uint64_t) + header;
    return LK_OK;
}

static lk_status safetensors_parse_header(lk_safetensors *file, const void *header, size_t bytes, int64_t size)
{
    json_error_t error;
    char quoted[LK_QUOTED];
    file->header = json_loadb(header, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        LK_FAIL(LK_ERR_FORMAT, "%s: the header is not JSON: byte %d: %s", file->path, error.position + 8,
                lk__quote(error.text, quoted));
    if (!json_is_object(file->header))
        LK_FAIL(LK_ERR_FORMAT, "%s: the header is no JSON object", file->path);
    return safetensors_parse_tensors(file, (int64_t)bytes, size - (int64_t)sizeof(uint64_t) - (int64_t)bytes);
}

static lk_safetensors *safetensors_new(const char *path)
{
    lk_safetensors *file = lk__calloc(1, sizeof *file);
    if (!file)
        return NULL;
    lk__refcount_init(&file->references);
    file->fd = -1;
    file->path = lk__strdup(path);
    if (file->path)
        return file;
    lk__free(file);
    return NULL;
}

/* Gives `made` to the caller, or closes it if there was an error. */
static lk_status safetensors_return(lk_safetensors *made, lk_status status, lk_safetensors **file)
{
    *file = status == LK_OK ? made : NULL;
    if (status != LK_OK)
        lk__safetensors_close(made);
    return status;
}

lk_status lk__safetensors_parse(const char *path, const void *header, size_t bytes, int64_t size, lk_safetensors **file)
{
    *file = NULL;
    if (bytes > LK_SAFETENSORS_MAX_HEADER || size < (int64_t)(bytes + sizeof(uint64_t)))
        LK_FAIL(LK_ERR_FORMAT, "%s: a header of %zu bytes in a file of %lld; at most %d are read", path, bytes,
                (long long)size, LK_SAFETENSORS_MAX_HEADER);
    lk_safetensors *made = safetensors_new(path);
    if (!made)
        return LK_ERR_MEMORY;
    return safetensors_return(made, safetensors_parse_header(made, header, bytes, size), file);
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

static lk_status safetensors_read_at(const lk_safetensors *file, int64_t at, void *data, size_t bytes)
{
    unsigned char *next = data;
    if (file->data && (at > file->size || (int64_t)bytes > file->size - at))
        LK_FAIL(LK_ERR_FORMAT, "%s: ends at byte %lld", file->path, (long long)file->size);
    if (file->data) {
        memcpy(data, file->data + at, bytes);
        return LK_OK;
    }
    while (bytes > 0) {
        ssize_t n = pread(file->fd, next, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", file->path, strerror(errno));
        if (n == 0)
            LK_FAIL(LK_ERR_FORMAT, "%s: ends at byte %lld, and %zu more belong there", file->path, (long long)at,
                    bytes);
        next += n;
        at += n;
        bytes -= (size_t)n;
    }
    return LK_OK;
}

static lk_status safetensors_read_header(lk_safetensors *file, int64_t size)
{
    unsigned char prefix[8];
    uint64_t bytes = 0;
    if (size < (int64_t)sizeof prefix)
        LK_FAIL(LK_ERR_FORMAT, "%s: %lld bytes; a safetensors file has at least 8", file->path, (long long)size);
    LK_TRY(safetensors_read_at(file, 0, prefix, sizeof prefix));
    if (memcmp(prefix, "PK\3\4", 4) == 0)
        LK_FAIL(LK_ERR_FORMAT,
                "%s: is a zip archive, as torch.save writes; expected safetensors, as safetensors.torch.save_file does",
                file->path);
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | prefix[i];
    if (bytes > LK_SAFETENSORS_MAX_HEADER || bytes > (uint64_t)size - sizeof prefix)
        LK_FAIL(LK_ERR_FORMAT,
                "%s: is no safetensors file: a header of %llu bytes in a file of %lld; at most %d are read", file->path,
                (unsigned long long)bytes, (long long)size, LK_SAFETENSORS_MAX_HEADER);
    char *header = lk__calloc((size_t)bytes + 1, 1);
    if (!header)
        return LK_ERR_MEMORY;
    lk_status status = safetensors_read_at(file, sizeof prefix, header, (size_t)bytes);
    if (status == LK_OK)
        status = safetensors_parse_header(file, header, (size_t)bytes, size);
    lk__free(header);
    return status;
}

static lk_status safetensors_open_file(lk_safetensors *file)
{
    struct stat about;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (file->fd < 0 || fstat(file->fd, &about) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", file->path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        LK_FAIL(LK_ERR_IO, "%s: is not a regular file", file->path);
    return safetensors_read_header(file, about.st_size);
}

lk_status lk__safetensors_take(const char *path, unsigned char *data, int64_t size, lk_safetensors **file)
{
    *file = NULL;
    lk_safetensors *made = safetensors_new(path);
    if (!made) {
        lk__free_aligned(data);
        return LK_ERR_MEMORY;
    }
    made->data = data;
    made->size = size;
    return safetensors_return(made, safetensors_read_header(made, size), file);
}

lk_status lk__safetensors_open(const char *path, lk_safetensors **file)
{
    *file = NULL;
    lk_safetensors *made = safetensors_new(path);
    if (!made)
        return LK_ERR_MEMORY;
    return safetensors_return(made, safetensors_open_file(made), file);
}

void lk__safetensors_retain(lk_safetensors *file)
{
    lk__refcount_retain(&file->references);
}

void lk__safetensors_close(lk_safetensors *file)
{
    if (!file || !lk__refcount_release(&file->references))
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->header);
    lk__free_aligned(file->data);
    lk__free(file->tensors);
    lk__free(file->path);
    lk__free(file);
}

int lk__safetensors_count(const lk_safetensors *file)
{
    return file->n;
}

const lk_safetensor *lk__safetensors_at(const lk_safetensors *file, int index)
{
    return index >= 0 && index < file->n ? &file->tensors[index] : NULL;
}

const lk_safetensor *lk__safetensors_find(const lk_safetensors *file, const char *name)
{
    for (int i = 0; i < file->n; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

const char *lk__safetensors_metadata(const lk_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static float safetensors_half_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(mantissa, -24)
                                   : ldexp(1024 + mantissa, exponent - 25);
    return (float)(half & 0x8000 ? -value : value);
}

/* Converts elements other than F32. False: the dtype is not supported. */
static bool safetensors_convert(const char *dtype, const void *raw, int64_t count, float *values)
{
    if (strcmp(dtype, "BF16") == 0) {
        lk__bf16_widen(raw, values, count);
    } else if (strcmp(dtype, "F16") == 0) {
        for (int64_t i = 0; i < count; i++)
            values[i] = safetensors_half_to_float(((const uint16_t *)raw)[i]);
    } else if (strcmp(dtype, "F64") == 0) {
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)((const double *)raw)[i];
    } else {
        return false;
    }
    return true;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are read in the file's byte order");

lk_status lk__safetensors_read(const lk_safetensors *file, const lk_safetensor *tensor, float *values)
{
    char name[LK_QUOTED];
    if (file->fd < 0 && !file->data)
        LK_FAIL(LK_ERR_STATE, "%s: its header alone is there", file->path);
    if (strcmp(tensor->dtype, "F32") == 0)
        return safetensors_read_at(file, tensor->begin, values, (size_t)tensor->bytes);
    void *raw = lk__alloc_aligned((size_t)tensor->bytes + 1);
    if (!raw)
        return LK_ERR_MEMORY;
    lk_status status = safetensors_read_at(file, tensor->begin, raw, (size_t)tensor->bytes);
    if (status == LK_OK && !safetensors_convert(tensor->dtype, raw, tensor->count, values))
        status = lk__fail(LK_ERR_FORMAT, "%s: tensor %s: is %s; expected F32, F64, F16 or BF16", file->path,
                          lk__quote(tensor->name, name), tensor->dtype);
    lk__free_aligned(raw);
    return status;
}

const float *lk__safetensors_values(const lk_safetensors *file, const lk_safetensor *tensor)
{
    bool usable = file->data && strcmp(tensor->dtype, "F32") == 0 && tensor->begin % (int64_t)sizeof(float) == 0;
    return usable ? (const float *)(const void *)(file->data + tensor->begin) : NULL;
}
