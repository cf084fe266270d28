#include "report/page_html.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/charts/line_chart.h"
#include "report/record_file.h"

#include <math.h>
#include <stdio.h>

enum { MOST_POINTS = 240, MOST_PICTURE = 16 << 20 };

void lk__html_text(lk_bytes *out, const char *text)
{
    for (uint32_t c; (c = lk__utf8_next(&text));) {
        if (c == '<')
            lk__bytes_text(out, "&lt;");
        else if (c == '>')
            lk__bytes_text(out, "&gt;");
        else if (c == '&')
            lk__bytes_text(out, "&amp;");
        else if (c == '"')
            lk__bytes_text(out, "&quot;");
        else if (c == '\'')
            lk__bytes_text(out, "&#39;");
        else
            lk__bytes_utf8(out, c < 0x20 && c != '\n' && c != '\t' ? 0xFFFD : c);
    }
}

void lk__html_short(lk_bytes *out, const char *text, int most)
{
    int length = most ? lk__utf8_length(text) : 0, at = 0;
    lk_bytes shown = {0};
    for (uint32_t c; (c = lk__utf8_next(&text)); at++) {
        bool kept = length <= most || at < most / 2 || at >= length - (most / 2 - 1);
        if (kept)
            lk__bytes_utf8(&shown, c);
        else if (at == most / 2)
            lk__bytes_text(&shown, "…");
    }
    lk__bytes_char(&shown, '\0');
    lk__html_text(out, shown.failed ? "" : (const char *)shown.data);
    out->failed = out->failed || shown.failed;
    lk__bytes_free(&shown);
}

void lk__html_number(lk_bytes *out, double value)
{
    char text[LK__TICK_TEXT] = "–";
    if (lk__plot_value(value))
        lk__number_text(value, text);
    lk__bytes_text(out, text);
}

void lk__html_percent(lk_bytes *out, double share, int decimals)
{
    if (!(fabs(share) < 1e9)) {
        lk__bytes_text(out, "–");
        return;
    }
    lk__bytes_fixed(out, share < 1 ? fmin(100 * share, 100 - pow(10, -decimals)) : 100 * share, decimals);
    lk__bytes_text(out, " %");
}

void lk__html_duration(lk_bytes *out, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e12)) {
        lk__bytes_text(out, "–");
    } else if (seconds < 60) {
        lk__bytes_fixed(out, seconds, 1);
        lk__bytes_text(out, " s");
    } else if (seconds < 3600) {
        lk__bytes_format(out, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    } else {
        long long minutes = (long long)(seconds / 60);
        lk__bytes_format(out, "%lld h %d min", minutes / 60, (int)(minutes % 60));
    }
}

void lk__html_row(lk_bytes *out, const char *name, const char *value)
{
    lk__bytes_text(out, "<tr><th scope=\"row\">");
    lk__html_text(out, name);
    lk__bytes_text(out, "</th><td>");
    lk__html_text(out, value);
    lk__bytes_text(out, "</td></tr>\n");
}

/* --- charts ------------------------------------------------------------------------------------------------------- */

/* A chart whose series were joined. */
typedef struct joined {
    lk_line_chart chart;
    lk_series series[LK_MAX_SERIES];
    double *values; /* of all series */
} joined;

static lk_status html_join_chart(const lk_line_chart *chart, joined *j)
{
    lk_axis_range x, y, right;
    lk__line_chart_ranges(chart, &x, &y, &right);
    *j = (joined){.chart = *chart};
    j->chart.series = j->series;
    j->values = lk__calloc((size_t)chart->series_count * 2 * MOST_POINTS + 1, sizeof *j->values);
    if (!j->values)
        return LK_ERR_MEMORY;
    for (int s = 0; s < chart->series_count; s++) {
        double *values = j->values + (ptrdiff_t)s * 2 * MOST_POINTS;
        j->series[s] = chart->series[s];
        if (x.min < x.max)
            lk__series_join(&j->series[s], MOST_POINTS, x.min, x.max, values, values + MOST_POINTS);
    }
    return LK_OK;
}

/* Writes the values of the series as an array of [x, y] in an attribute, and their names in another. */
static void html_put_values(lk_bytes *out, const lk_line_chart *chart)
{
    lk__bytes_text(out, " data-series=\"[");
    for (int s = 0; s < chart->series_count; s++) {
        const lk_series *series = &chart->series[s];
        lk__bytes_text(out, s ? ",[[" : "[[");
        for (int axis = 0; axis < 2; axis++) {
            const double *values = axis ? series->y : series->x;
            for (int64_t i = 0; i < series->count; i++) {
                lk__bytes_text(out, i ? "," : "");
                if (lk__plot_value(values[i]))
                    lk__html_number(out, values[i]);
                else
                    lk__bytes_text(out, "null");
            }
            lk__bytes_text(out, axis ? "]]" : "],[");
        }
    }
    lk__bytes_text(out, "]\" data-names=\"");
    for (int s = 0; s < chart->series_count; s++) {
        lk__bytes_text(out, s ? "\n" : "");
        lk__html_text(out, chart->series[s].name);
    }
    lk__bytes_text(out, "\"");
}

static void html_put_frame(lk_bytes *out, const lk_chart_frame *f, const lk_axis *x, const lk_axis *y)
{
    const double numbers[] = {f->left, f->right, f->top, f->bottom, x->min, x->max, y->min, y->max};
    lk__bytes_text(out, " data-frame=\"");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        lk__bytes_text(out, i ? " " : "");
        lk__bytes_real(out, numbers[i]);
    }
    lk__bytes_char(out, '"');
}

/* Appends the picture without the line before its <svg>, which is for files. */
static lk_status html_put_svg(lk_bytes *out, const lk_line_chart *chart, const char *class, int width, int height)
{
    lk_canvas *canvas;
    lk_chart_frame frame;
    lk_axis x, y;
    lk_bytes svg = {0};
    lk_line_chart drawn = *chart;
    drawn.title = NULL;
    LK_TRY(lk__canvas_new(&lk__svg_table, width, height, &canvas));
    lk_status status = lk__line_chart_draw(&drawn, canvas, (lk_area){0, 0, width, height}, &frame, &x, &y);
    if (status == LK_OK)
        status = canvas->table->encode(canvas, &svg);
    lk__bytes_char(&svg, '\0');
    if (status == LK_OK)
        status = lk__bytes_status(&svg);
    const char *start = status == LK_OK ? strstr((const char *)svg.data, "<svg") : NULL;
    if (start) {
        lk__bytes_format(out, "<svg class=\"%s\" role=\"img\"", class);
        html_put_frame(out, &frame, &x, &y);
        lk__bytes_text(out, " aria-label=\"");
        lk__html_text(out, chart->title);
        lk__bytes_char(out, '"');
        lk__bytes_text(out, start + strlen("<svg"));
    }
    lk__bytes_free(&svg);
    lk__canvas_release(canvas);
    return status;
}

lk_status lk__html_line_chart(lk_bytes *out, const lk_line_chart *chart)
{
    joined j;
    LK_TRY(lk__line_chart_check(chart));
    LK_TRY(html_join_chart(chart, &j));
    lk__bytes_text(out, "<figure class=\"chart\"");
    html_put_values(out, &j.chart);
    lk__bytes_text(out, ">\n<figcaption>");
    lk__html_text(out, chart->title);
    lk__bytes_text(out, "</figcaption>\n"); /* unlike a title in the picture, it has as many lines as it needs */
    lk_status status = html_put_svg(out, &j.chart, "wide", 540, 300);
    if (status == LK_OK)
        status = html_put_svg(out, &j.chart, "narrow", 350, 250);
    lk__bytes_text(out, "</figure>\n");
    lk__free(j.values);
    return status;
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

static void html_put_base64(lk_bytes *out, const unsigned char *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        unsigned long group = (unsigned long)data[i] << 16;
        size_t left = size - i;
        group |= left > 1 ? (unsigned long)data[i + 1] << 8 : 0;
        group |= left > 2 ? data[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++)
            lk__bytes_char(out, k <= left ? digits[group >> (18 - 6 * k) & 63] : '=');
    }
}

lk_status lk__html_picture(lk_bytes *out, const char *path, const char *alt)
{
    static const unsigned char signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    lk_bytes picture = {0};
    lk_status status = lk__record_load(path, MOST_PICTURE, &picture);
    bool is_png =
        status == LK_OK && picture.size > sizeof signature && memcmp(picture.data, signature, sizeof signature) == 0;
    if (status == LK_OK && !is_png)
        status = lk__fail(LK_ERR_FORMAT, "%s: is no PNG picture", path);
    if (status == LK_OK) {
        lk__bytes_text(out, "<img alt=\"");
        lk__html_text(out, alt);
        lk__bytes_text(out, "\" src=\"data:image/png;base64,");
        html_put_base64(out, picture.data, picture.size);
        lk__bytes_text(out, "\">\n");
    }
    lk__bytes_free(&picture);
    return status;
}
