/* A growing byte buffer. After a failed allocation it ignores later additions and remembers the failure, so that a
 * writer checks lk__bytes_status once, at the end. A zeroed lk_bytes is empty. */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lk_bytes {
    unsigned char *data;
    size_t size, capacity;
    bool failed;
} lk_bytes;

void lk__bytes_put(lk_bytes *bytes, const void *data, size_t size);
void lk__bytes_char(lk_bytes *bytes, char character);
void lk__bytes_text(lk_bytes *bytes, const char *text);

/* Appends at most 255 bytes a call. Not for floating-point numbers: printf's decimal point depends on the locale. */
void lk__bytes_format(lk_bytes *bytes, const char *format, ...) LK_PRINTF(2, 3);

/* As lk__number_fixed. */
void lk__bytes_fixed(lk_bytes *bytes, double value, int decimals);

/* Appends "0.1", "2.0" or "1e-05": the fewest digits that read back as the same double, in any locale. `value` must be
 * finite. */
void lk__bytes_real(lk_bytes *bytes, double value);

void lk__bytes_utf8(lk_bytes *bytes, uint32_t code_point);

/* Appends a file's contents; stops once the buffer holds more than `most` bytes. Returns 0 or an errno. A failed
 * allocation shows in lk__bytes_status alone. */
int lk__bytes_read_file(lk_bytes *bytes, const char *path, size_t most);

/* Appends text as valid UTF-8: every byte that is not UTF-8 becomes U+FFFD. */
void lk__bytes_clean(lk_bytes *bytes, const char *text);

/* LK_ERR_MEMORY if an addition failed; its message was set then. */
lk_status lk__bytes_status(const lk_bytes *bytes);

/* Empties the buffer, clears its failure and keeps its memory. */
void lk__bytes_clear(lk_bytes *bytes);
void lk__bytes_free(lk_bytes *bytes);

/* Returns the code point at *text and advances *text past it; 0 at the end. A byte that is not UTF-8 gives U+FFFD. */
uint32_t lk__utf8_next(const char **text);

/* Returns the number of code points. */
int lk__utf8_length(const char *text);
