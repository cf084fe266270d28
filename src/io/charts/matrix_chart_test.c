/* Matrices of counts as SVG. */
#include "io/io_testing.h"

#include "lockstep/plot.h"

enum { SIZE = 3 };

static const char *const names[SIZE] = {"cat", "dog <b>", NULL};
static const int64_t counts[SIZE * SIZE] = {7, 2, 0, 0, 1234, 0, 0, 0, 0};

static int times(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

static void shows_counts_and_names(void **state)
{
    (void)state;
    lk_matrix_chart chart = {.title = "three",
                             .row_label = "label",
                             .column_label = "predicted",
                             .names = names,
                             .counts = counts,
                             .size = SIZE};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_OK);
    char *svg = contents_of(in_dir("m.svg"), NULL);
    assert_int_equal(times(svg, ">7<"), 1);
    assert_int_equal(times(svg, ">2<"), 1 + 2); /* and the class without a name, at its row and its column */
    assert_int_equal(times(svg, ">1234<"), 1);
    assert_int_equal(times(svg, ">0<"), 0);
    assert_int_equal(times(svg, ">cat<"), 2);
    assert_int_equal(times(svg, "dog &lt;b&gt;<"), 2);
    assert_int_equal(times(svg, ">three<") + times(svg, ">label<") + times(svg, ">predicted<"), 3);
    free(svg);
}

/* A square with all of a row is darkest; an empty one is white. */
static void shades_by_share_of_the_row(void **state)
{
    (void)state;
    lk_matrix_chart chart = {.counts = counts, .size = SIZE};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_OK);
    char *svg = contents_of(in_dir("m.svg"), NULL);
    assert_int_equal(times(svg, "#08306b") + times(svg, "#08306B"), 1);
    free(svg);
}

static void refuses_what_it_cannot_draw(void **state)
{
    (void)state;
    static const int64_t negative[] = {1, -1, 0, 0};
    lk_matrix_chart chart = {.counts = negative, .size = 2};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "matrix chart: row 0, column 1: the count is -1; 0 or more");
    lk_error_clear();
    chart.size = 257;
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_ERR_ARGUMENT);
    lk_error_clear();
    chart = (lk_matrix_chart){.counts = counts, .size = SIZE};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.gif")), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void draws_as_many_classes_as_it_takes(void **state)
{
    (void)state;
    enum { MOST = 256 };
    int64_t *many = calloc(MOST * MOST, sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < MOST; i++)
        many[i * MOST + i] = i;
    lk_matrix_chart chart = {.counts = many, .size = MOST};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_OK);
    free(many);
}

/* Names are cut in the middle, because long ones often begin alike. */
static void long_names_stay_different(void **state)
{
    (void)state;
    static const char *const long_names[SIZE] = {"vehicles/of the road/with four wheels/cabriolet",
                                                 "vehicles/of the road/with four wheels/limousine",
                                                 "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
                                                 "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00f6"};
    lk_matrix_chart chart = {.names = long_names, .counts = counts, .size = SIZE};
    assert_int_equal(lk_matrix_chart_write(&chart, in_dir("m.svg")), LK_OK);
    char *svg = contents_of(in_dir("m.svg"), NULL);
    assert_int_equal(times(svg, ">vehicles"), 4);
    assert_int_equal(times(svg, "cabriolet<"), 2);
    assert_int_equal(times(svg, "limousine<"), 2);
    assert_int_equal(times(svg, "\u00e4\u2026\u00e4"), 2);
    assert_int_equal(times(svg, "\u00f6<"), 2);
    assert_int_equal(times(svg, ">100%<") + times(svg, ">0%<"), 2); /* the scale */
    free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(shows_counts_and_names),      FOLDER_TEST(shades_by_share_of_the_row),
        FOLDER_TEST(refuses_what_it_cannot_draw), FOLDER_TEST(draws_as_many_classes_as_it_takes),
        FOLDER_TEST(long_names_stay_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
