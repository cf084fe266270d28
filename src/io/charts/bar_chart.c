#include "base/status.h"
#include "io/charts/chart.h"

#include <math.h>
#include <stdio.h>

enum { DEFAULT_WIDTH = 720, DEFAULT_HEIGHT = 440, PIXELS_A_ROW_OF_TICKS = 36, MOST_BARS = 100, FIT = 256 };
enum { LEAST_SLOT = 12, GAP = 4, WHISKER = 6 };

static const double PI = 3.14159265358979323846;
static const double LEAN = 40;   /* angle, in degrees, of labels that are too wide for their bars */
static const double LINE = 1.25; /* line height, in font sizes */

static const lk_font value_font = {11, false, LK__INK};
static const lk_font note_font = {10.5, false, LK__FAINT_INK};

typedef struct layout {
    lk_chart_frame frame;
    lk_axis y;
    double slot;         /* width for a bar and its texts */
    bool lean;           /* the labels below the bars are too wide and lean */
    bool upright;        /* the texts above the bars are too wide and stand upright */
    double label_length; /* the longest that a leaning label may be */
    double text_length;  /* the longest that an upright text may be */
} layout;

static bool bar_has_value(const lk_bar *bar)
{
    return lk__plot_value(bar->value);
}

static bool bar_has_whisker(const lk_bar *bar)
{
    return bar->low < bar->high;
}

static const char *bar_note(const lk_bar *bar)
{
    return bar->note ? bar->note : bar_has_value(bar) ? NULL : "not reached";
}

static lk_status bar_chart_check(const lk_bar_chart *chart)
{
    if (chart->bar_count < 1 || chart->bar_count > MOST_BARS)
        LK_FAIL(LK_ERR_ARGUMENT, "bar chart: %d bars; it takes 1 … %d", chart->bar_count, MOST_BARS);
    for (int i = 0; i < chart->bar_count; i++) {
        const lk_bar *bar = &chart->bars[i];
        const char *label = bar->label ? bar->label : "(without a label)";
        if (bar_has_value(bar) && bar->value < 0)
            LK_FAIL(LK_ERR_ARGUMENT, "bar chart: the value of %s is %g; 0 or more", label, bar->value);
        if (!lk__plot_value(bar->low) || !lk__plot_value(bar->high) || bar->low > bar->high || bar->low < 0)
            LK_FAIL(LK_ERR_ARGUMENT, "bar chart: the interval of %s is %g … %g; 0 <= low <= high", label, bar->low,
                    bar->high);
    }
    return LK_OK;
}

static double bar_chart_text_width(lk_canvas *canvas, const char *text, lk_font font)
{
    return text ? canvas->table->text_width(canvas, text, font) : 0;
}

/* Writes the text over a bar: "12.34", or with its note "12.34 (3 of 5)". */
static void bar_value_text(const lk_bar *bar, bool with_note, char *text, size_t size)
{
    char number[LK__TICK_TEXT] = "";
    const char *note = bar_note(bar);
    if (bar_has_value(bar))
        lk__number_text(bar->value, number);
    if (with_note && note)
        snprintf(text, size, bar_has_value(bar) ? "%s (%s)" : "%s%s", number, note);
    else
        snprintf(text, size, "%s", number);
}

/* --- layout ------------------------------------------------------------------------------------------------------ */

/* Returns the height of the texts over a bar. */
static double bar_chart_texts_height(const layout *l, const lk_bar *bar)
{
    char text[FIT];
    if (!l->upright)
        return (bar_has_value(bar) + (bar_note(bar) != NULL)) * value_font.size * LINE + GAP;
    bar_value_text(bar, true, text, sizeof text);
    return fmin(bar_chart_text_width(l->frame.canvas, text, value_font), l->text_length) + GAP;
}

static double bar_top(const lk_bar *bar)
{
    if (!bar_has_value(bar))
        return 0;
    return bar_has_whisker(bar) ? fmax(bar->value, bar->high) : bar->value;
}

/* Lowers the top of the chart until the texts over every bar fit below the title. A bar that fills a share p of the
 * height leaves (1 - p) height above it; lowering the top by e adds p e to that. */
static void bar_chart_make_headroom(layout *l, const lk_bar_chart *chart)
{
    double height = l->frame.bottom - l->frame.top, down = 0;
    for (int i = 0; i < chart->bar_count; i++) {
        double share = lk__axis_position(&l->y, bar_top(&chart->bars[i]));
        if (share > 0)
            down = fmax(down, (bar_chart_texts_height(l, &chart->bars[i]) - (1 - share) * height) / share);
    }
    l->frame.top += fmin(down, height / 2);
}

/* Turns texts that are too wide for their bars. */
static void bar_chart_turn_texts(layout *l, const lk_bar_chart *chart)
{
    lk_canvas *canvas = l->frame.canvas;
    double label = 0, text_width = 0;
    for (int i = 0; i < chart->bar_count; i++) {
        const lk_bar *bar = &chart->bars[i];
        char text[FIT];
        bar_value_text(bar, false, text, sizeof text);
        label = fmax(label, bar_chart_text_width(canvas, bar->label, lk__label_font));
        text_width = fmax(text_width, bar_chart_text_width(canvas, text, value_font));
        text_width = fmax(text_width, bar_chart_text_width(canvas, bar_note(bar), note_font));
    }
    l->lean = label + GAP > l->slot;
    l->upright = text_width + GAP > l->slot;
    if (l->lean)
        l->frame.bottom -= fmin(label, l->label_length) * sin(LEAN * PI / 180);
}

static void bar_chart_layout(layout *l, const lk_bar_chart *chart, lk_canvas *canvas)
{
    double highest = 0;
    for (int i = 0; i < chart->bar_count; i++)
        highest = fmax(highest, bar_top(&chart->bars[i]));
    int most = (canvas->height - 120) / PIXELS_A_ROW_OF_TICKS;
    lk__axis_make(&l->y, 0, highest > 0 ? highest : 1, most, false, true, true);
    lk_labels labels = {.title = chart->title, .x = chart->x_label, .y = chart->y_label};
    lk__frame_begin(&l->frame, canvas, (lk_area){0, 0, canvas->width, canvas->height}, labels, &l->y, NULL);
    l->slot = (l->frame.right - l->frame.left) / chart->bar_count;
    l->label_length = canvas->height / 3.0;
    l->text_length = canvas->height / 4.0;
    bar_chart_turn_texts(l, chart);
    bar_chart_make_headroom(l, chart);
}

/* --- drawing ----------------------------------------------------------------------------------------------------- */

static double bar_chart_height_at(const layout *l, double value)
{
    return l->frame.bottom - (l->frame.bottom - l->frame.top) * lk__axis_position(&l->y, value);
}

static void bar_chart_draw_label(const layout *l, const lk_bar *bar, double center)
{
    lk_canvas *canvas = l->frame.canvas;
    char fitted[FIT];
    if (!bar->label || l->slot < LEAST_SLOT)
        return;
    lk__canvas_fit(canvas, bar->label, lk__label_font, l->lean ? l->label_length : l->slot, fitted, sizeof fitted);
    double below = l->frame.bottom + LK__TICK_GAP + lk__label_font.size * 0.8;
    if (l->lean)
        canvas->table->text(canvas, (lk_point){center + 6, below - 3}, fitted, lk__label_font, LK__RIGHT, LEAN);
    else
        canvas->table->text(canvas, (lk_point){center, below}, fitted, lk__label_font, LK__CENTER, 0);
}

static void bar_chart_draw_whisker(const layout *l, const lk_bar *bar, double center)
{
    const lk_canvas_table *draw = l->frame.canvas->table;
    const lk_pen pen = {.width = 1.5, .color = LK__INK};
    double low = bar_chart_height_at(l, bar->low), high = bar_chart_height_at(l, bar->high),
           half = fmin(WHISKER, l->slot / 4);
    draw->lines(l->frame.canvas, (lk_point[]){{center, low}, {center, high}}, 2, pen);
    draw->lines(l->frame.canvas, (lk_point[]){{center - half, low}, {center + half, low}}, 2, pen);
    draw->lines(l->frame.canvas, (lk_point[]){{center - half, high}, {center + half, high}}, 2, pen);
}

/* Returns whether the texts fit between the whisker and the edge of the slot, directly over the bar. Above a long
 * whisker they would look like its end. */
static bool bar_chart_is_beside(const layout *l, const lk_bar *bar, const char *text)
{
    double width = fmax(bar_chart_text_width(l->frame.canvas, text, value_font),
                        bar_chart_text_width(l->frame.canvas, bar_note(bar), note_font));
    return bar_has_value(bar) && bar_has_whisker(bar) && WHISKER + GAP + width + GAP <= l->slot / 2;
}

/* `base` is the lower edge of the texts, unless they fit beside a whisker. */
static void bar_chart_draw_texts(const layout *l, const lk_bar *bar, double center, double base)
{
    lk_canvas *canvas = l->frame.canvas;
    const char *note = bar_note(bar);
    char text[FIT], fitted[FIT];
    if (l->slot < LEAST_SLOT)
        return;
    bar_value_text(bar, l->upright, text, sizeof text);
    if (l->upright) {
        lk__canvas_fit(canvas, text, value_font, l->text_length, fitted, sizeof fitted);
        canvas->table->text(canvas, (lk_point){center + value_font.size * 0.36, base}, fitted, value_font, LK__LEFT,
                            90);
        return;
    }
    lk_align align = LK__CENTER;
    if (bar_chart_is_beside(l, bar, text)) {
        center += WHISKER + GAP;
        base = bar_chart_height_at(l, bar->value) - GAP;
        align = LK__LEFT;
    }
    if (bar_has_value(bar)) {
        canvas->table->text(canvas, (lk_point){center, base}, text, value_font, align, 0);
        base -= value_font.size * LINE;
    }
    if (note)
        canvas->table->text(canvas, (lk_point){center, base}, note, note_font, align, 0);
}

static void bar_chart_draw_bar(const layout *l, const lk_bar *bar, double center)
{
    if (bar_has_value(bar)) {
        double width = fmin(l->slot * 0.66, 72), top = bar_chart_height_at(l, bar->value);
        lk_point corner = {center - width / 2, top};
        l->frame.canvas->table->rectangle(l->frame.canvas, corner, width, l->frame.bottom - top, lk__colors[0]);
        if (bar_has_whisker(bar))
            bar_chart_draw_whisker(l, bar, center);
    }
    bar_chart_draw_texts(l, bar, center, bar_chart_height_at(l, bar_top(bar)) - GAP);
    bar_chart_draw_label(l, bar, center);
}

lk_status lk_bar_chart_write(const lk_bar_chart *chart, const char *path)
{
    LK_TRY(bar_chart_check(chart));
    lk_canvas *canvas;
    LK_TRY(lk__canvas_open(path, chart->width ? chart->width : DEFAULT_WIDTH,
                           chart->height ? chart->height : DEFAULT_HEIGHT, &canvas));
    layout l;
    bar_chart_layout(&l, chart, canvas);
    lk__frame_y(&l.frame, &l.y);
    for (int i = 0; i < chart->bar_count; i++)
        bar_chart_draw_bar(&l, &chart->bars[i], l.frame.left + l.slot * (i + 0.5));
    lk__frame_x(&l.frame, NULL);
    lk_status status = lk__canvas_write(canvas, path);
    lk__canvas_release(canvas);
    return status;
}
