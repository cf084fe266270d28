#include "io/charts/contact_sheet.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/charts/canvas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MARGIN = 10,
    GAP = 8,
    TITLE_ROW = 28,
    CAPTION_ROW = 16,
    GOOD_WIDTH = 100,
    MOST_SIDE = 16384,
    FIT = 256,
    MOST_LINES = 14
};

static const lk_font title_font = {15, true, LK__INK}, caption_font = {11, false, LK__INK};

typedef struct layout {
    int64_t columns, rows, scale;
    int64_t cell_width, cell_height; /* an image, its caption and a gap */
    int64_t lines;                   /* of a caption */
    int64_t top, width, height;
} layout;

lk_status lk__contact_sheet_check(const lk_contact_sheet *sheet)
{
    if (sheet->count < 1 || sheet->height < 1 || sheet->width < 1 || (sheet->channels != 1 && sheet->channels != 3))
        LK_FAIL(LK_ERR_ARGUMENT,
                "contact sheet: %lld images of %lld channels, %lld x %lld; at least one, of 1 or 3 channels",
                (long long)sheet->count, (long long)sheet->channels, (long long)sheet->height, (long long)sheet->width);
    if (sheet->dtype != LK_U8 && sheet->dtype != LK_F32)
        LK_FAIL(LK_ERR_ARGUMENT, "contact sheet: images of dtype %s; u8 or f32", lk_dtype_name(sheet->dtype));
    if (sheet->columns < 0 || sheet->scale < 0 || !(sheet->black <= sheet->white))
        LK_FAIL(LK_ERR_ARGUMENT,
                "contact sheet: columns %lld, scale %lld, black %g, white %g; none negative, black <= white",
                (long long)sheet->columns, (long long)sheet->scale, sheet->black, sheet->white);
    return LK_OK;
}

/* Returns the most lines that a caption has. */
static int64_t contact_sheet_caption_lines(const lk_contact_sheet *sheet)
{
    int64_t most = 0;
    for (int64_t i = 0; sheet->captions && i < sheet->count; i++) {
        int64_t lines = 1;
        for (const char *at = sheet->captions[i]; at && (at = strchr(at, '\n')); at++)
            lines++;
        most = lk__max(most, lines);
    }
    return lk__min(most, MOST_LINES);
}

static lk_status contact_sheet_layout(const lk_contact_sheet *sheet, layout *l)
{
    bool fits = sheet->count <= MOST_SIDE && sheet->width <= MOST_SIDE && sheet->height <= MOST_SIDE &&
                sheet->scale <= MOST_SIDE && sheet->columns <= MOST_SIDE;
    if (fits) {
        l->scale = sheet->scale ? sheet->scale : (GOOD_WIDTH + sheet->width - 1) / sheet->width;
        l->lines = contact_sheet_caption_lines(sheet);
        l->columns = sheet->columns ? sheet->columns : (int64_t)ceil(sqrt((double)sheet->count));
        l->columns = lk__min(l->columns, sheet->count);
        l->rows = (sheet->count + l->columns - 1) / l->columns;
        l->cell_width = sheet->width * l->scale + GAP;
        l->cell_height = sheet->height * l->scale + l->lines * CAPTION_ROW + GAP;
        l->top = MARGIN + (sheet->title ? TITLE_ROW : 0);
        l->width = 2 * MARGIN + l->columns * l->cell_width - GAP;
        l->height = l->top + l->rows * l->cell_height - GAP + MARGIN;
        fits = l->width <= MOST_SIDE && l->height <= MOST_SIDE;
    }
    if (!fits)
        LK_FAIL(LK_ERR_ARGUMENT,
                "contact sheet: %lld images of %lld x %lld pixels, scaled by %lld, make a side of more than %d pixels",
                (long long)sheet->count, (long long)sheet->height, (long long)sheet->width, (long long)sheet->scale,
                MOST_SIDE);
    return LK_OK;
}

/* Widens the sheet, up to its limit, for a title that is wider than the images. */
static lk_status contact_sheet_widen_for_title(const lk_contact_sheet *sheet, layout *l)
{
    lk_canvas *canvas; /* only to measure the title; encode reports whether that failed */
    lk_bytes picture = {0};
    if (!sheet->title)
        return LK_OK;
    LK_TRY(lk__canvas_new(&lk__png_table, 1, 1, &canvas));
    int64_t width = 2 * MARGIN + (int64_t)ceil(canvas->table->text_width(canvas, sheet->title, title_font));
    lk_status status = canvas->table->encode(canvas, &picture);
    lk__bytes_free(&picture);
    lk__canvas_release(canvas);
    l->width = lk__max(l->width, lk__min(width, MOST_SIDE));
    return status;
}

void lk__contact_sheet_range(const lk_contact_sheet *sheet, double *black, double *white)
{
    *black = sheet->black;
    *white = sheet->white;
    if (sheet->dtype != LK_F32 || *black < *white)
        return;
    const float *values = sheet->images;
    *black = INFINITY;
    *white = -INFINITY;
    for (int64_t i = 0; i < sheet->count * sheet->channels * sheet->height * sheet->width; i++)
        if (isfinite(values[i])) {
            *black = fmin(*black, values[i]);
            *white = fmax(*white, values[i]);
        }
    if (!(*black < *white))
        *white = *black + 1;
}

void lk__contact_sheet_convert(const lk_contact_sheet *sheet, int64_t index, double black, double white,
                               unsigned char *rgb)
{
    int64_t pixels = sheet->height * sheet->width, image = index * sheet->channels * pixels;
    for (int64_t i = 0; i < pixels; i++) {
        bool finite = true;
        for (int c = 0; c < 3; c++) {
            int64_t at = image + (sheet->channels == 3 ? c : 0) * pixels + i;
            if (sheet->dtype == LK_U8) {
                rgb[3 * i + c] = ((const unsigned char *)sheet->images)[at];
                continue;
            }
            double value = ((const float *)sheet->images)[at];
            finite = finite && isfinite(value);
            double share = fmin(fmax((value - black) / (white - black), 0), 1);
            rgb[3 * i + c] = (unsigned char)lround(255 * share);
        }
        if (!finite) {
            rgb[3 * i] = rgb[3 * i + 2] = 255;
            rgb[3 * i + 1] = 0;
        }
    }
}

static void contact_sheet_draw_caption(const layout *l, lk_canvas *canvas, const char *caption, int64_t x, int64_t y)
{
    double width = (double)l->cell_width - GAP / 2.0;
    for (int64_t i = 0; i < l->lines && *caption; i++) {
        char line[FIT], fitted[FIT];
        size_t length = strcspn(caption, "\n");
        lk_point at = {(double)x, (double)(y + i * CAPTION_ROW) + caption_font.size + 2};
        snprintf(line, sizeof line, "%.*s", (int)length, caption);
        lk__canvas_fit_middle(canvas, line, caption_font, width, fitted, sizeof fitted);
        canvas->table->text(canvas, at, fitted, caption_font, LK__LEFT, 0);
        caption += length + (caption[length] == '\n');
    }
}

static void contact_sheet_draw(const lk_contact_sheet *sheet, const layout *l, lk_canvas *canvas, unsigned char *rgb)
{
    char fitted[FIT];
    double black, white;
    lk__contact_sheet_range(sheet, &black, &white);
    if (sheet->title) {
        lk__canvas_fit(canvas, sheet->title, title_font, (double)(l->width - 2 * MARGIN), fitted, sizeof fitted);
        canvas->table->text(canvas, (lk_point){MARGIN, MARGIN + title_font.size}, fitted, title_font, LK__LEFT, 0);
    }
    for (int64_t i = 0; i < sheet->count; i++) {
        int64_t x = MARGIN + i % l->columns * l->cell_width, y = l->top + i / l->columns * l->cell_height;
        lk__contact_sheet_convert(sheet, i, black, white, rgb);
        lk__png_canvas_pixels(canvas, (int)x, (int)y, (int)l->scale, (int)sheet->width, (int)sheet->height, rgb);
        if (!sheet->captions || !sheet->captions[i])
            continue;
        contact_sheet_draw_caption(l, canvas, sheet->captions[i], x, y + sheet->height * l->scale);
    }
}

lk_status lk_contact_sheet_write(const lk_contact_sheet *sheet, const char *path)
{
    layout l;
    LK_TRY(lk__contact_sheet_check(sheet));
    LK_TRY(contact_sheet_layout(sheet, &l));
    LK_TRY(contact_sheet_widen_for_title(sheet, &l));
    lk_canvas *canvas;
    LK_TRY(lk__canvas_new(&lk__png_table, (int)l.width, (int)l.height, &canvas));
    unsigned char *rgb = lk__calloc((size_t)(sheet->height * sheet->width), 3);
    lk_status status = LK_ERR_MEMORY;
    if (rgb) {
        contact_sheet_draw(sheet, &l, canvas, rgb);
        status = lk__canvas_write(canvas, path);
    }
    lk__free(rgb);
    lk__canvas_release(canvas);
    return status;
}
