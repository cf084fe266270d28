/* A growing run of bytes. A failed allocation is kept and makes later additions do nothing, so that whoever writes a
 * format asks once, at the end. Zeroed is empty. */
#ifndef LK_IO_BYTES_H
#define LK_IO_BYTES_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk__bytes {
    unsigned char *data;
    size_t size, capacity;
    bool failed;
} lk__bytes;

void lk__bytes_put(lk__bytes *bytes, const void *data, size_t size);
void lk__bytes_char(lk__bytes *bytes, char character);
void lk__bytes_text(lk__bytes *bytes, const char *text);

/* At most 255 bytes a call. Not for floating-point numbers: their point depends on the locale. */
void lk__bytes_format(lk__bytes *bytes, const char *format, ...) LK_PRINTF(2, 3);

/* "12.5": exactly `decimals` digits after the point, 0 … 9, in any locale. |value| < 9e18 / 10^decimals. */
enum { LK__FIXED_TEXT = 24 };
void lk__fixed_text(double value, int decimals, char text[LK__FIXED_TEXT]);
void lk__bytes_fixed(lk__bytes *bytes, double value, int decimals);

/* "0.1", "2.0", "1e-05": the fewest digits that read back to the same double, which is finite, in any locale. */
void lk__bytes_real(lk__bytes *bytes, double value);

void lk__bytes_utf8(lk__bytes *bytes, uint32_t code_point);

/* Text in UTF-8, with U+FFFD for each byte that is not. */
void lk__bytes_clean(lk__bytes *bytes, const char *text);

/* LK_ERR_MEMORY where an addition failed. */
lk_status lk__bytes_status(const lk__bytes *bytes);

/* Empty again, with its memory kept. */
void lk__bytes_clear(lk__bytes *bytes);
void lk__bytes_free(lk__bytes *bytes);

/* The code point at *text, which moves on behind it; 0 at the end. What is not UTF-8 gives U+FFFD, byte by byte. */
uint32_t lk__utf8_next(const char **text);

/* Code points. */
int lk__utf8_length(const char *text);

#endif
