/* Writes Protocol Buffers' wire format (protobuf.dev, "Encoding"): a message is the sequence of its fields. Numbers are
 * little-endian on any machine. A field is written even if it holds its default. */
#pragma once

#include "io/bytes.h"

void lk__pb_varint(lk_bytes *out, int field, uint64_t value);
void lk__pb_double(lk_bytes *out, int field, double value);
void lk__pb_float(lk_bytes *out, int field, float value);
void lk__pb_doubles(lk_bytes *out, int field, const double *values, size_t count);  /* packed */
void lk__pb_varints(lk_bytes *out, int field, const int64_t *values, size_t count); /* packed */
void lk__pb_string(lk_bytes *out, int field, const char *text);

/* Writes the field's key and length. The caller appends the `size` bytes. */
void lk__pb_bytes(lk_bytes *out, int field, size_t size);

/* Everything written between begin and end becomes the message in `field`. end takes what begin returned. */
size_t lk__pb_begin(lk_bytes *out, int field);
void lk__pb_end(lk_bytes *out, size_t begin);

/* Append numbers without a field's key. */
void lk__put_u32(lk_bytes *out, uint32_t value);
void lk__put_u64(lk_bytes *out, uint64_t value);
void lk__put_varint(lk_bytes *out, uint64_t value);
void lk__put_floats(lk_bytes *out, const float *values, size_t count);
