#include "io/records/protobuf.h"

#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };
enum { MAX_VARINT = 10 };

static size_t protobuf_encode_varint(uint64_t value, unsigned char bytes[MAX_VARINT])
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (unsigned char)(value | 0x80);
    bytes[size++] = (unsigned char)value;
    return size;
}

void lk__put_varint(lk_bytes *out, uint64_t value)
{
    unsigned char bytes[MAX_VARINT];
    lk__bytes_put(out, bytes, protobuf_encode_varint(value, bytes));
}

static void protobuf_put_key(lk_bytes *out, int field, enum wire_type type)
{
    lk__put_varint(out, (uint64_t)field << 3 | (uint64_t)type);
}

static void protobuf_put_little_endian(lk_bytes *out, uint64_t value, int size)
{
    unsigned char bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    lk__bytes_put(out, bytes, (size_t)size);
}

void lk__put_u32(lk_bytes *out, uint32_t value)
{
    protobuf_put_little_endian(out, value, 4);
}

void lk__put_u64(lk_bytes *out, uint64_t value)
{
    protobuf_put_little_endian(out, value, 8);
}

void lk__put_floats(lk_bytes *out, const float *values, size_t count)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    lk__bytes_put(out, values, count * sizeof *values);
#else
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        lk__put_u32(out, bits);
    }
#endif
}

static void protobuf_put_double(lk_bytes *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    lk__put_u64(out, bits);
}

void lk__pb_varint(lk_bytes *out, int field, uint64_t value)
{
    protobuf_put_key(out, field, WIRE_VARINT);
    lk__put_varint(out, value);
}

void lk__pb_double(lk_bytes *out, int field, double value)
{
    protobuf_put_key(out, field, WIRE_64);
    protobuf_put_double(out, value);
}

void lk__pb_float(lk_bytes *out, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    protobuf_put_key(out, field, WIRE_32);
    lk__put_u32(out, bits);
}

void lk__pb_doubles(lk_bytes *out, int field, const double *values, size_t count)
{
    protobuf_put_key(out, field, WIRE_LENGTH);
    lk__put_varint(out, (uint64_t)count * 8);
    for (size_t i = 0; i < count; i++)
        protobuf_put_double(out, values[i]);
}

void lk__pb_varints(lk_bytes *out, int field, const int64_t *values, size_t count)
{
    size_t begin = lk__pb_begin(out, field);
    for (size_t i = 0; i < count; i++)
        lk__put_varint(out, (uint64_t)values[i]);
    lk__pb_end(out, begin);
}

void lk__pb_bytes(lk_bytes *out, int field, size_t size)
{
    protobuf_put_key(out, field, WIRE_LENGTH);
    lk__put_varint(out, size);
}

void lk__pb_string(lk_bytes *out, int field, const char *text)
{
    size_t size = strlen(text);
    lk__pb_bytes(out, field, size);
    lk__bytes_put(out, text, size);
}

size_t lk__pb_begin(lk_bytes *out, int field)
{
    protobuf_put_key(out, field, WIRE_LENGTH);
    return out->size;
}

/* The length precedes the message and has a variable size, so the message is moved to make space for it. */
void lk__pb_end(lk_bytes *out, size_t begin)
{
    if (out->failed)
        return;
    unsigned char length[MAX_VARINT];
    size_t message = out->size - begin, prefix = protobuf_encode_varint(message, length);
    lk__bytes_put(out, length, prefix);
    if (out->failed)
        return;
    memmove(out->data + begin + prefix, out->data + begin, message);
    memcpy(out->data + begin, length, prefix);
}
