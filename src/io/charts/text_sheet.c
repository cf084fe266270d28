/* Draws contact sheets in a terminal. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/bytes.h"
#include "io/charts/contact_sheet.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { THUMB = 28, GAP = 2, LEAST_COLUMNS = 24, MOST_COLUMNS = 1000 };

/* --- the terminal ------------------------------------------------------------------------------------------------- */

/* The first of the three variables that is set decides: locale(7). */
static bool text_sheet_locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "UTF-8") || strcasestr(value, "UTF8");
    }
    return false;
}

lk_text_style lk_text_style_of(FILE *stream)
{
    struct winsize size;
    const char *kind = getenv("TERM"), *no_color = getenv("NO_COLOR");
    lk_text_style style = {.ascii = !text_sheet_locale_is_utf8()};
    if (!isatty(fileno(stream)) || !kind || strcmp(kind, "dumb") == 0 || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0)
        return style;
    style.columns = size.ws_col > 0 ? size.ws_col - 1 : 0;
    style.rows = size.ws_row;
    style.color = !no_color || !*no_color;
    return style;
}

/* --- images ------------------------------------------------------------------------------------------------------- */

typedef struct text_sheet {
    const lk_contact_sheet *sheet;
    lk_text_style style;
    int64_t factor;        /* a square with sides of this many pixels becomes one pixel */
    int64_t width, height; /* size of a reduced image */
    int64_t in_row;        /* images in a row */
    unsigned char *rgb;    /* an image: [sheet->height, sheet->width, 3] */
    unsigned char *small;  /* the reduced images of a row: [in_row, height, width, 3] */
    double black, white;
    lk_bytes out;
} text_sheet;

static void text_sheet_reduce_image(const text_sheet *t, const unsigned char *rgb, unsigned char *small)
{
    int64_t w = t->sheet->width, h = t->sheet->height, f = t->factor;
    for (int64_t y = 0; y < t->height; y++)
        for (int64_t x = 0; x < t->width; x++)
            for (int c = 0; c < 3; c++) {
                int64_t sum = 0, n = 0;
                for (int64_t v = y * f; v < (y + 1) * f && v < h; v++)
                    for (int64_t u = x * f; u < (x + 1) * f && u < w; u++, n++)
                        sum += rgb[3 * (v * w + u) + c];
                small[3 * (y * t->width + x) + c] = (unsigned char)(n ? (sum + n / 2) / n : 0);
            }
}

/* Returns the closest of a terminal's 256 colors: 24 grays and a cube of 6 x 6 x 6 with the steps 0, 95, 135, … 255. */
static int text_sheet_terminal_color(const unsigned char *p)
{
    int cube[3];
    if (p[0] == p[1] && p[1] == p[2])
        return p[0] < 4 ? 16 : p[0] > 246 ? 231 : 232 + (p[0] - 3) * 24 / 244;
    for (int c = 0; c < 3; c++)
        cube[c] = p[c] < 48 ? 0 : p[c] < 115 ? 1 : (p[c] - 35) / 40;
    return 16 + 36 * cube[0] + 6 * cube[1] + cube[2];
}

static void text_sheet_put_cell(text_sheet *t, const unsigned char *above, const unsigned char *below)
{
    static const char ramp[] = " .:-=+*#%@";
    if (t->style.color && !t->style.ascii) {
        lk__bytes_format(&t->out, "\x1b[38;5;%d;48;5;%dm▀", text_sheet_terminal_color(above),
                         text_sheet_terminal_color(below));
        return;
    }
    int sum = 0;
    for (int c = 0; c < 3; c++)
        sum += above[c] + below[c];
    if (t->style.color) {
        const unsigned char mean[] = {(unsigned char)((above[0] + below[0]) / 2),
                                      (unsigned char)((above[1] + below[1]) / 2),
                                      (unsigned char)((above[2] + below[2]) / 2)};
        lk__bytes_format(&t->out, "\x1b[48;5;%dm ", text_sheet_terminal_color(mean));
        return;
    }
    lk__bytes_char(&t->out, ramp[sum * 10 / (6 * 255 + 1)]);
}

static void text_sheet_put_pixel_line(text_sheet *t, int64_t y, int64_t count)
{
    static const unsigned char nothing[3];
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *image = t->small + i * t->height * t->width * 3;
        for (int64_t x = 0; x < t->width; x++)
            text_sheet_put_cell(t, image + 3 * (y * t->width + x),
                                y + 1 < t->height ? image + 3 * ((y + 1) * t->width + x) : nothing);
        if (t->style.color)
            lk__bytes_text(&t->out, "\x1b[0m");
        for (int gap = 0; gap < GAP && i + 1 < count; gap++)
            lk__bytes_char(&t->out, ' ');
    }
    lk__bytes_char(&t->out, '\n');
}

/* Returns line `number` of a caption; "" if it has fewer. */
static const char *text_sheet_caption_line(const char *caption, int number)
{
    for (; caption && number > 0; number--) {
        caption = strchr(caption, '\n');
        caption += caption != NULL;
    }
    return caption ? caption : "";
}

static void text_sheet_put_caption_line(text_sheet *t, int64_t first, int64_t count, int number)
{
    for (int64_t i = 0; i < count; i++) {
        const char *text = text_sheet_caption_line(t->sheet->captions[first + i], number);
        int64_t left = t->width;
        for (uint32_t c; left > 0 && *text != '\n' && (c = lk__utf8_next(&text)); left--)
            lk__bytes_utf8(&t->out, c < 0x20 || c == 0x7f || (t->style.ascii && c > 0x7e) ? '?' : c);
        for (int64_t spaces = i + 1 < count ? left + GAP : 0; spaces > 0; spaces--)
            lk__bytes_char(&t->out, ' ');
    }
    lk__bytes_char(&t->out, '\n');
}

static void text_sheet_put_captions(text_sheet *t, int64_t first, int64_t count)
{
    int lines = 1;
    for (int64_t i = first; i < first + count; i++) {
        int own = 1;
        for (const char *at = t->sheet->captions[i]; at && (at = strchr(at, '\n')) && at[1]; at++)
            own++;
        lines = (int)lk__max(lines, own);
    }
    for (int number = 0; number < lines; number++)
        text_sheet_put_caption_line(t, first, count, number);
}

static void text_sheet_put_image_row(text_sheet *t, int64_t first)
{
    const lk_contact_sheet *sheet = t->sheet;
    int64_t count = lk__min(sheet->count - first, t->in_row);
    for (int64_t i = 0; i < count; i++) {
        lk__contact_sheet_convert(sheet, first + i, t->black, t->white, t->rgb);
        text_sheet_reduce_image(t, t->rgb, t->small + i * t->height * t->width * 3);
    }
    for (int64_t y = 0; y < t->height; y += 2)
        text_sheet_put_pixel_line(t, y, count);
    if (sheet->captions)
        text_sheet_put_captions(t, first, count);
}

char *lk_contact_sheet_text(const lk_contact_sheet *sheet, lk_text_style style)
{
    if (lk__contact_sheet_check(sheet) != LK_OK)
        return NULL;
    if (style.columns < LEAST_COLUMNS || style.columns > MOST_COLUMNS) {
        lk__fail(LK_ERR_ARGUMENT, "sheet of images: %d columns; must be from %d to %d", style.columns, LEAST_COLUMNS,
                 MOST_COLUMNS);
        return NULL;
    }
    text_sheet t = {.sheet = sheet, .style = style};
    int64_t widest = lk__min(style.columns, THUMB);
    t.factor = (sheet->width + widest - 1) / widest;
    t.width = (sheet->width + t.factor - 1) / t.factor;
    t.height = (sheet->height + t.factor - 1) / t.factor;
    t.in_row = (style.columns + GAP) / (t.width + GAP);
    lk__contact_sheet_range(sheet, &t.black, &t.white);
    t.rgb = lk__calloc((size_t)(sheet->height * sheet->width), 3);
    t.small = lk__calloc((size_t)(t.in_row * t.height * t.width), 3);
    for (int64_t first = 0; t.rgb && t.small && first < sheet->count; first += t.in_row)
        text_sheet_put_image_row(&t, first);
    lk__bytes_char(&t.out, '\0');
    bool made = t.rgb && t.small && lk__bytes_status(&t.out) == LK_OK;
    lk__free(t.rgb);
    lk__free(t.small);
    if (made)
        return (char *)t.out.data;
    lk__bytes_free(&t.out);
    return NULL;
}
