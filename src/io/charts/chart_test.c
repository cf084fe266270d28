/* Charts as SVG, which any build writes. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "io/charts/line_chart.h"
#include "lockstep/plot.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* --- reading SVG ------------------------------------------------------------------------------------------------- */

static const char *check_text(const char *at)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;"};
    for (; *at && *at != '<'; at++) {
        assert_true((unsigned char)*at >= 0x20 || *at == '\n' || *at == '\t');
        assert_true(*at != '>');
        bool known = *at != '&';
        for (int i = 0; i < 3; i++)
            known |= !strncmp(at, entities[i], strlen(entities[i]));
        assert_true(known);
    }
    return at;
}

/* Skips a tag's attributes, name="value" each. Returns the position of `>` or `/>`. */
static const char *check_attributes(const char *at)
{
    for (;;) {
        if (*at == '>' || !strncmp(at, "/>", 2))
            return at;
        assert_int_equal(*at++, ' ');
        assert_true(isalpha((unsigned char)*at));
        at += strcspn(at, "= />");
        assert_true(at[0] == '=' && at[1] == '"');
        size_t length = strcspn(at + 2, "\"<&");
        assert_int_equal(at[2 + length], '"');
        at += 2 + length + 1;
    }
}

/* Checks that the SVG is well-formed: every tag is closed in order, attributes are quoted, texts are escaped. */
static void assert_well_formed(const char *at)
{
    const char *open[16];
    size_t length[16];
    int depth = 0, elements = 0;
    const char declaration[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    assert_int_equal(strncmp(at, declaration, strlen(declaration)), 0);
    for (at = check_text(at + strlen(declaration)); *at; at = check_text(at)) {
        bool closing = at[1] == '/';
        at += closing ? 2 : 1;
        size_t name = strcspn(at, " />");
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_true(length[depth] == name && !strncmp(open[depth], at, name));
            assert_int_equal(at[name], '>');
            at += name + 1;
            continue;
        }
        assert_true(depth < 16 && (depth > 0 || elements == 0));
        elements++;
        open[depth] = at;
        length[depth] = name;
        at = check_attributes(at + name);
        depth += *at == '>';
        at += *at == '>' ? 1 : 2;
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 0);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static char *line_svg(const lk_line_chart *chart)
{
    assert_int_equal(lk_line_chart_write(chart, in_dir("line.svg")), LK_OK);
    char *svg = contents_of(in_dir("line.svg"), NULL);
    assert_well_formed(svg);
    return svg;
}

static char *bar_svg(const lk_bar_chart *chart)
{
    assert_int_equal(lk_bar_chart_write(chart, in_dir("bar.svg")), LK_OK);
    char *svg = contents_of(in_dir("bar.svg"), NULL);
    assert_well_formed(svg);
    return svg;
}

/* --- line charts ------------------------------------------------------------------------------------------------- */

static const double epochs[] = {1, 2, 3, 4, 5, 6};
static const double loss[] = {2.4, 1.2, 0.9, 0.7, 0.65, 0.6};
static const double accuracy[] = {0.2, 0.5, NAN, 0.7, NAN, 0.8};

static void a_line_chart_has_what_it_was_given(void **state)
{
    (void)state;
    const lk_series series[] = {{.name = "loss < 1 & \"falling\"", .x = epochs, .y = loss, .count = 6},
                                {.name = "accuracy", .x = epochs, .y = accuracy, .count = 6}};
    const lk_line_chart chart = {
        .title = "Training", .x_label = "epoch", .y_label = "loss, accuracy", .series = series, .series_count = 2};
    char *svg = line_svg(&chart);
    const char *const texts[] = {
        ">Training<", ">epoch<", ">loss, accuracy<", ">loss &lt; 1 &amp; \"falling\"<", ">accuracy<", ">0.0<", ">2.5<",
        ">1<",        ">6<"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(count_of(svg, texts[i]), 1);
    /* A line in the legend and one through six points; one in the legend and one through the two joined points. */
    assert_int_equal(count_of(svg, "stroke=\"#0072B2\""), 2);
    assert_int_equal(count_of(svg, "stroke=\"#D55E00\""), 2);
    assert_int_equal(count_of(svg, "<circle"), 6 + 4);
    assert_int_equal(count_of(svg, "nan"), 0);
    free(svg);
    assert_int_equal(files_in_dir(test_dir), 1);
}

/* However the points lie, there are at most as many means as parts. */
static void joins_points_in_any_order(void **state)
{
    (void)state;
    double x[101], y[101], joined[2][4];
    for (int i = 0; i < 101; i++) {
        x[i] = i % 2 ? 1e300 * (i - 50) : 0.001;
        y[i] = i;
    }
    lk_series series = {.x = x, .y = y, .count = 101};
    lk__series_join(&series, 4, 0, x[100], joined[0], joined[1]);
    assert_in_range(series.count, 1, 4);
    for (int i = 0; i < 101; i++)
        x[i] = i;
    series = (lk_series){.x = x, .y = y, .count = 101};
    lk__series_join(&series, 4, 0, 100, joined[0], joined[1]);
    assert_int_equal(series.count, 4);
    assert_true(joined[1][0] == 16.5 && joined[1][3] == 100);
}

static void points_are_where_the_axes_say(void **state)
{
    (void)state;
    const double x[] = {0, 10}, y[] = {0, 100};
    const lk_series series = {.x = x, .y = y, .count = 2};
    const lk_line_chart chart = {.series = &series, .series_count = 1, .width = 400, .height = 300};
    char *svg = line_svg(&chart);
    double x0, y0, x1, y1, left, bottom;
    const char *grid = strstr(svg, "<polyline"), *line = strstr(svg, "stroke=\"#0072B2\"");
    assert_non_null(line);
    while (line > svg && strncmp(line, "points=\"", 8))
        line--;
    assert_int_equal(sscanf(line, "points=\"%lf,%lf %lf,%lf", &x0, &y0, &x1, &y1), 4);
    assert_int_equal(sscanf(grid, "<polyline points=\"%lf,%lf", &left, &bottom), 2);
    assert_true(fabs(x0 - left) <= 1 && fabs(y0 - bottom) <= 1);
    assert_true(x1 > 350 && x1 < 400 && y1 > 0 && y1 < 50);
    free(svg);
}

static void a_range_is_kept_or_widened(void **state)
{
    (void)state;
    const lk_series series = {.name = "accuracy", .x = epochs, .y = loss, .count = 6};
    lk_line_chart chart = {.series = &series, .series_count = 1, .x_max = 10, .y_max = 4};
    char *svg = line_svg(&chart);
    assert_non_null(strstr(svg, ">10<"));
    assert_non_null(strstr(svg, ">4.0<"));
    free(svg);
    chart.y_max = 1; /* 2.4 is outside */
    svg = line_svg(&chart);
    assert_non_null(strstr(svg, ">2.5<"));
    free(svg);
}

/* The points of a line of this color that has two. */
static void ends_of(const char *svg, const char *stroke, double *x0, double *y0, double *x1, double *y1)
{
    const char *line = strstr(svg, stroke);
    assert_non_null(line);
    while (line > svg && strncmp(line, "points=\"", 8))
        line--;
    assert_int_equal(sscanf(line, "points=\"%lf,%lf %lf,%lf", x0, y0, x1, y1), 4);
}

static void an_axis_at_the_right(void **state)
{
    (void)state;
    const double x[] = {0, 10}, high[] = {0, 100}, low[] = {1, 0.5};
    const lk_series series[] = {{.x = x, .y = high, .count = 2}, {.x = x, .y = low, .count = 2, .right = true}};
    lk_line_chart chart = {
        .y_label = "loss", .right_label = "accuracy", .series = series, .series_count = 2, .right_max = 1};
    char *svg = line_svg(&chart);
    double x0, y0, x1, y1, left, bottom, right, top;
    ends_of(svg, "stroke=\"#0072B2\"", &left, &bottom, &right, &top);
    ends_of(svg, "stroke=\"#D55E00\"", &x0, &y0, &x1, &y1);
    assert_true(fabs(x0 - left) <= 1 && fabs(x1 - right) <= 1);
    assert_true(fabs(y0 - top) <= 1 && fabs(y1 - (top + bottom) / 2) <= 1);
    assert_int_equal(count_of(svg, ">accuracy<"), 1);
    assert_int_equal(count_of(svg, ">loss<"), 1);
    assert_int_equal(count_of(svg, ">100<"), 1);
    assert_int_equal(count_of(svg, ">1.0<"), 1);
    free(svg);
    chart.series_count = 1; /* no series uses the right axis */
    svg = line_svg(&chart);
    assert_int_equal(count_of(svg, ">accuracy<"), 0);
    assert_int_equal(count_of(svg, ">1.0<"), 0);
    free(svg);
}

static void charts_of_nothing(void **state)
{
    (void)state;
    const double none[] = {NAN, INFINITY, 1e200};
    const lk_series series[] = {{.name = "nothing", .x = NULL, .y = NULL, .count = 0},
                                {.name = "not finite", .x = none, .y = none, .count = 3}};
    char *svg = line_svg(&(lk_line_chart){.series = series, .series_count = 2, .width = 160, .height = 160});
    assert_int_equal(count_of(svg, "<circle"), 0);
    assert_null(strstr(svg, ">nothing<")); /* not in the legend either */
    assert_null(strstr(svg, ">not finite<"));
    free(svg);
    free(line_svg(&(lk_line_chart){.title = "\x80 broken \x01 text"}));
}

static void refused(lk_status status, const char *message)
{
    assert_int_equal(status, LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), message));
    lk_error_clear();
}

static void line_charts_that_make_no_sense(void **state)
{
    (void)state;
    const lk_series series = {.name = "a", .x = epochs, .y = loss, .count = 6};
    lk_line_chart chart = {.series = &series, .series_count = 1};
    refused(lk_line_chart_write(&chart, in_dir("a.pdf")), "ends in .svg or .png");
    refused(lk_line_chart_write(&chart, NULL), "ends in .svg or .png");
    refused(lk_chart_check("a.pdf"), "ends in .svg or .png");
    assert_int_equal(lk_chart_check("no/such/a.svg"), LK_OK);
    chart.width = 100;
    refused(lk_line_chart_write(&chart, in_dir("a.svg")), "160");
    const lk_line_chart wide[] = {{.width = INT_MAX}, {.width = INT_MAX}},
                        negative[] = {{.width = 1000}, {.width = -500}}, many[] = {{.width = 5000}, {.width = 5000}};
    refused(lk_line_charts_write(NULL, wide, 2, in_dir("a.svg")), "a chart of 2147483647 x 440 pixels");
    refused(lk_line_charts_write(NULL, negative, 2, in_dir("a.svg")), "a chart of -500 x 440 pixels");
    refused(lk_line_charts_write(NULL, many, 2, in_dir("a.svg")), "a chart of 10000 x 440 pixels");
    chart = (lk_line_chart){.series = &series, .series_count = LK_MAX_SERIES + 1};
    refused(lk_line_chart_write(&chart, in_dir("a.svg")), "9 series");
    chart = (lk_line_chart){.series = &series, .series_count = 1, .y_min = 1, .y_max = 0};
    refused(lk_line_chart_write(&chart, in_dir("a.svg")), "y_min is 1");
    chart = (lk_line_chart){.series = &series, .series_count = 1, .right_min = INFINITY};
    refused(lk_line_chart_write(&chart, in_dir("a.svg")), "right_min is inf");
    chart = (lk_line_chart){.series = &series, .series_count = 1, .x_max = NAN};
    refused(lk_line_chart_write(&chart, in_dir("a.svg")), "x_max");
    chart.x_max = 0;
    assert_int_equal(lk_line_chart_write(&chart, in_dir("no/such/a.svg")), LK_ERR_IO);
    lk_error_clear();
}

/* --- bar charts -------------------------------------------------------------------------------------------------- */

static const lk_bar bars[] = {
    {.label = "32", .value = 12.5, .low = 11, .high = 14},
    {.label = "64", .value = 9.25, .note = "2 of 3"},
    {.label = "128", .value = NAN},
    {.label = "256", .value = INFINITY, .note = "gave up"},
};

static void a_bar_chart_has_what_it_was_given(void **state)
{
    (void)state;
    const lk_bar_chart chart = {
        .title = "Time", .x_label = "batch size", .y_label = "seconds", .bars = bars, .bar_count = 4};
    char *svg = bar_svg(&chart);
    const char *const texts[] = {">Time<", ">batch size<", ">seconds<", ">32<",     ">64<",          ">128<",
                                 ">256<",  ">12.50<",      ">9.250<",   ">2 of 3<", ">not reached<", ">gave up<"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(count_of(svg, texts[i]), 1);
    assert_int_equal(count_of(svg, "fill=\"#0072B2\""), 2);
    assert_int_equal(count_of(svg, "stroke-width=\"1.5\""), 3); /* one whisker */
    free(svg);
}

/* Returns the y of the text. */
static double text_height(const char *svg, const char *text)
{
    const char *y = strstr(svg, text);
    assert_non_null(y);
    while (strncmp(y, " y=\"", 4) != 0)
        y--;
    return atof(y + 4);
}

/* A value stands at the end of its bar: next to a whisker, not above it. */
static void a_value_stands_beside_its_whisker(void **state)
{
    (void)state;
    const lk_bar two[] = {{.label = "a", .value = 2, .low = 0, .high = 10}, {.label = "b", .value = 2.001}};
    const lk_bar_chart chart = {.bars = two, .bar_count = 2};
    char *svg = bar_svg(&chart);
    assert_true(fabs(text_height(svg, ">2.000<") - text_height(svg, ">2.001<")) < 1);
    free(svg);
}

static void texts_that_are_too_wide_are_turned(void **state)
{
    (void)state;
    lk_bar many[24];
    for (int i = 0; i < 24; i++)
        many[i] = (lk_bar){.label = "a rather long label", .value = 1000 + i, .note = i == 3 ? "1 of 3" : NULL};
    const lk_bar_chart chart = {.bars = many, .bar_count = 24};
    char *svg = bar_svg(&chart);
    assert_int_equal(count_of(svg, "rotate(-40.0"), 24);
    assert_int_equal(count_of(svg, "rotate(-90.0"), 24);
    assert_non_null(strstr(svg, ">1003 (1 of 3)<"));
    free(svg);
}

static void bar_charts_that_make_no_sense(void **state)
{
    (void)state;
    lk_bar bar = {.label = "eight", .value = -1};
    lk_bar_chart chart = {.bars = &bar, .bar_count = 1};
    refused(lk_bar_chart_write(&chart, in_dir("a.svg")), "the value of eight is -1");
    bar = (lk_bar){.label = "eight", .value = 1, .low = 2, .high = 1};
    refused(lk_bar_chart_write(&chart, in_dir("a.svg")), "the interval of eight");
    bar = (lk_bar){.label = "eight", .value = 1, .low = 0, .high = INFINITY};
    refused(lk_bar_chart_write(&chart, in_dir("a.svg")), "the interval of eight");
    chart.bar_count = 0;
    refused(lk_bar_chart_write(&chart, in_dir("a.svg")), "0 bars");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const lk_series series = {.name = "loss", .x = epochs, .y = loss, .count = 6};
    const lk_line_chart lines = {.title = "t", .series = &series, .series_count = 1};
    const lk_bar_chart chart = {.title = "t", .bars = bars, .bar_count = 4};
    put_file(in_dir("kept.svg"), "old");
    for (int kind = 0; kind < 2; kind++) {
        for (failing f = fail_every(1); fail_next(&f);) {
            lk_status status = kind == 0 ? lk_line_chart_write(&lines, in_dir("kept.svg"))
                                         : lk_bar_chart_write(&chart, in_dir("kept.svg"));
            stop_failing_with(&f, status);
            if (f.reached && kind == 0)
                assert_contents(in_dir("kept.svg"), "old");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_chart_has_what_it_was_given),
        cmocka_unit_test(joins_points_in_any_order),
        cmocka_unit_test(points_are_where_the_axes_say),
        cmocka_unit_test(a_range_is_kept_or_widened),
        cmocka_unit_test(an_axis_at_the_right),
        cmocka_unit_test(charts_of_nothing),
        cmocka_unit_test(line_charts_that_make_no_sense),
        cmocka_unit_test(a_bar_chart_has_what_it_was_given),
        cmocka_unit_test(a_value_stands_beside_its_whisker),
        cmocka_unit_test(texts_that_are_too_wide_are_turned),
        cmocka_unit_test(bar_charts_that_make_no_sense),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("chart", tests, make_test_dir, remove_test_dir);
}
