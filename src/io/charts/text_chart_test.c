#include "base/mem_testing.h"
#include "io/bytes.h"
#include "lockstep/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double epochs[] = {1, 2, 3, 4, 5};
static const double loss[] = {1, 0.75, 0.5, 0.25, 0};
static const double accuracy[] = {0, NAN, 0.5, 0.5, 1};
static const lk_series both[] = {{.name = "loss", .x = epochs, .y = loss, .count = 5},
                                 {.name = "accuracy", .x = epochs, .y = accuracy, .count = 5}};

static void a_small_chart_in_ascii(void **state)
{
    (void)state;
    const lk_line_chart chart = {.title = "lenet", .series = both, .series_count = 2};
    char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 30, .rows = 10, .ascii = true});
    assert_non_null(text);
    assert_string_equal(text, "            lenet\n"
                              "* loss   + accuracy\n"
                              "1.0 +***                    ++\n"
                              "    |   ******           +++\n"
                              "0.5 +         ***++++++++\n"
                              "    |              ***\n"
                              "    |                 ****\n"
                              "0.0 ++                    ****\n"
                              "    ++-----+-----+-----+-----+\n"
                              "     1     2     3     4     5\n");
    lk_free(text);
}

static void an_axis_at_the_right(void **state)
{
    (void)state;
    const double high[] = {40, 30, 20, 10, 0};
    const lk_series series[] = {{.name = "loss", .x = epochs, .y = high, .count = 5},
                                {.name = "accuracy", .x = epochs, .y = accuracy, .count = 5, .right = true}};
    const lk_line_chart chart = {
        .y_label = "loss", .right_label = "accuracy", .series = series, .series_count = 2, .right_max = 1};
    char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 32, .rows = 12, .ascii = true});
    assert_non_null(text);
    assert_string_equal(text, "* loss   + accuracy\n"
                              "loss                    accuracy\n"
                              "40 +**                    ++ 1.0\n"
                              "   |  ***               ++ |\n"
                              "   |     ****         ++   |\n"
                              "20 +         **+++++++     + 0.5\n"
                              "   |             ***       |\n"
                              "   |                ***    |\n"
                              "   |                   **  |\n"
                              " 0 ++                    **+ 0.0\n"
                              "   ++-----+----+-----+----++\n"
                              "    1     2    3     4    5\n");
    lk_free(text);
}

/* A name may hold anything, but what is printed moves no cursor, and with `ascii` is ASCII. */
static void labels_are_printable(void **state)
{
    (void)state;
    const lk_series series[] = {{.name = "a\302\233\177b\303\266", .x = epochs, .y = accuracy, .count = 5},
                                {.name = "c", .x = epochs, .y = accuracy, .count = 5, .right = true}};
    const lk_line_chart chart = {
        .y_label = "left", .right_label = "r\n\033\377", .series = series, .series_count = 2, .right_max = 1};
    char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 40, .rows = 12, .ascii = true});
    assert_non_null(text);
    int lines = 0;
    for (const char *c = text; *c; c++) {
        assert_true(*c == '\n' || (*c >= 0x20 && *c < 0x7F));
        lines += *c == '\n';
    }
    assert_int_equal(lines, 12);
    assert_non_null(strstr(text, "a  b?"));
    assert_non_null(strstr(text, " r  ?\n"));
    lk_free(text);
}

/* Removes escape sequences. */
static void plain(char *text)
{
    char *to = text;
    while (*text) {
        if (*text == '\033')
            text = strchr(text, 'm') + 1;
        else
            *to++ = *text++;
    }
    *to = '\0';
}

static void every_style_fits(void **state)
{
    (void)state;
    const double huge[] = {-1.25e19, 0, 1e19, 2e19, 3e19};
    const lk_series two_axes[] = {{.name = "loss", .x = epochs, .y = huge, .count = 5},
                                  {.name = "accuracy", .x = epochs, .y = huge, .count = 5, .right = true}};
    for (int columns = 24; columns < 200; columns += 7) {
        for (int rows = 8; rows < 50; rows += 5) {
            for (int kind = 0; kind < 8; kind++) {
                const lk_line_chart chart = {.title = "a title that is longer than the narrowest terminal",
                                             .x_label = "epoch",
                                             .y_label = "loss",
                                             .right_label = "accuracy",
                                             .series = kind & 4 ? two_axes : both,
                                             .series_count = 2};
                lk_text_style style = {columns, rows, kind & 1, kind & 2};
                char *text = lk_line_chart_text(&chart, style), *line = text;
                assert_non_null(text);
                assert_true((strchr(text, '\033') != NULL) == style.color);
                plain(text);
                int lines = 0;
                for (char *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
                    *end = '\0';
                    assert_true(lk__utf8_length(line) <= columns);
                    for (const char *c = line; *c && style.ascii; c++)
                        assert_true(*c >= 0x20 && *c < 0x7F);
                }
                assert_int_equal(*line, '\0');
                assert_int_equal(lines, rows);
                lk_free(text);
            }
        }
    }
}

/* A vertical line fills four dots of a cell, a horizontal one two. */
static void braille_has_eight_dots_a_cell(void **state)
{
    (void)state;
    const double x[] = {0, 1}, level[] = {0, 0};
    const lk_series series = {.name = NULL, .x = x, .y = level, .count = 2};
    const lk_line_chart chart = {.series = &series, .series_count = 1, .y_max = 1};
    char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 24, .rows = 8});
    assert_non_null(text);
    const char *bottom = strstr(text, "0.0 ┤");
    assert_non_null(bottom);
    bottom += strlen("0.0 ┤");
    for (int i = 0; i < 24 - 5; i++)
        assert_int_equal(lk__utf8_next(&bottom), 0x28C0); /* the two lowest dots */
    assert_int_equal(*bottom, '\n');
    lk_free(text);
}

static void charts_of_nothing(void **state)
{
    (void)state;
    const lk_series empty = {.name = "nothing yet", .x = NULL, .y = NULL, .count = 0};
    const lk_line_chart chart = {.series = &empty, .series_count = 1, .x_min = 1, .x_max = 10, .y_max = 1};
    char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 60, .rows = 12, .ascii = true});
    assert_non_null(text);
    assert_null(strstr(text, "nothing yet")); /* not in the legend either */
    assert_non_null(strstr(text, "10\n"));
    lk_free(text);
}

static void sizes_that_are_too_small(void **state)
{
    (void)state;
    const lk_line_chart chart = {.series = both, .series_count = 2};
    assert_null(lk_line_chart_text(&chart, (lk_text_style){.columns = 23, .rows = 10}));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "23 columns"));
    lk_error_clear();
    assert_null(lk_line_chart_text(&chart, (lk_text_style){.columns = 80, .rows = 7}));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const lk_line_chart chart = {.series = both, .series_count = 2};
    for (failing f = fail_every(1); fail_next(&f);) {
        char *text = lk_line_chart_text(&chart, (lk_text_style){.columns = 100, .rows = 30, .color = true});
        stop_failing_with(&f, lk_error_status());
        assert_true((text == NULL) == f.reached);
        lk_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_chart_in_ascii),    cmocka_unit_test(an_axis_at_the_right),
        cmocka_unit_test(every_style_fits),          cmocka_unit_test(braille_has_eight_dots_a_cell),
        cmocka_unit_test(charts_of_nothing),         cmocka_unit_test(sizes_that_are_too_small),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(labels_are_printable),
    };
    return cmocka_run_group_tests_name("text_chart", tests, NULL, NULL);
}
