/* Parts of the page: texts, numbers, charts. Everything that comes from a file goes through lk__html_text. */
#pragma once

#include "io/bytes.h"
#include "lockstep/plot.h"

/* Appends text with the characters that mean something in HTML written as entities, also fit for attributes. */
void lk__html_text(lk_bytes *out, const char *text);

/* Appends text of which at most so many characters are kept, without the middle; 0: all of it. */
void lk__html_short(lk_bytes *out, const char *text, int most);

/* Appends a number with four significant digits, or a dash if it is not finite. */
void lk__html_number(lk_bytes *out, double value);

/* Appends a share as "91.25 %", or a dash. A share below 1 is not rounded up to 100 %. */
void lk__html_percent(lk_bytes *out, double share, int decimals);

/* Appends "4.2 s", "3 min 20 s" or "2 h 5 min", or a dash. */
void lk__html_duration(lk_bytes *out, double seconds);

/* Appends a row of a table of names and values. */
void lk__html_row(lk_bytes *out, const char *name, const char *value);

/* Appends a figure with the chart for wide and for narrow screens, and its values for the script. Long series are drawn
 * as means over parts of the x axis. Errors: LK_ERR_ARGUMENT, LK_ERR_MEMORY. */
lk_status lk__html_line_chart(lk_bytes *out, const lk_line_chart *chart);

/* Appends a picture in a file as a data URI of an image. alt: its text. Errors: LK_ERR_NOT_FOUND, LK_ERR_IO,
 * LK_ERR_FORMAT (no PNG, or too large), LK_ERR_MEMORY. */
lk_status lk__html_picture(lk_bytes *out, const char *path, const char *alt);
