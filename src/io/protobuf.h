/* Writes Protocol Buffers' wire format (protobuf.dev, "Encoding"): a message is its fields one after another. Numbers
 * are little-endian whatever the machine is. Fields are written also where they hold their default. */
#ifndef LK_IO_PROTOBUF_H
#define LK_IO_PROTOBUF_H

#include "io/bytes.h"

void lk__pb_varint(lk__bytes *out, int field, uint64_t value);
void lk__pb_double(lk__bytes *out, int field, double value);
void lk__pb_float(lk__bytes *out, int field, float value);
void lk__pb_doubles(lk__bytes *out, int field, const double *values, size_t count);  /* packed */
void lk__pb_varints(lk__bytes *out, int field, const int64_t *values, size_t count); /* packed */
void lk__pb_string(lk__bytes *out, int field, const char *text);

/* The field's key and length; `size` bytes have to follow. */
void lk__pb_bytes(lk__bytes *out, int field, size_t size);

/* What is written between the two is the message of `field`. */
size_t lk__pb_begin(lk__bytes *out, int field);
void lk__pb_end(lk__bytes *out, size_t begin);

/* Not fields of a message: plain numbers. */
void lk__put_u32(lk__bytes *out, uint32_t value);
void lk__put_u64(lk__bytes *out, uint64_t value);
void lk__put_varint(lk__bytes *out, uint64_t value);
void lk__put_floats(lk__bytes *out, const float *values, size_t count);

#endif
