/* PNG pictures, read back with libcairo. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "lockstep/plot.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

static const double x[] = {1, 2, 3}, y[] = {0.5, 0.7, 0.9};
static const lk_series series = {.name = "accuracy", .x = x, .y = y, .count = 3};
static const lk_line_chart lines = {.title = "t", .series = &series, .series_count = 1, .width = 400, .height = 300};

#ifdef LK_HAVE_CAIRO

#include <cairo.h>

typedef struct picture {
    cairo_surface_t *surface;
    int width, height;
} picture;

static picture read_picture(const char *name)
{
    size_t size;
    char *file = contents_of(in_dir(name), &size);
    assert_true(size > 8);
    assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
    free(file);
    picture p = {.surface = cairo_image_surface_create_from_png(in_dir(name))};
    assert_int_equal(cairo_surface_status(p.surface), CAIRO_STATUS_SUCCESS);
    p.width = cairo_image_surface_get_width(p.surface);
    p.height = cairo_image_surface_get_height(p.surface);
    return p;
}

static uint32_t pixel(const picture *p, int column, int row)
{
    const unsigned char *data = cairo_image_surface_get_data(p->surface);
    uint32_t value;
    memcpy(&value, data + (ptrdiff_t)row * cairo_image_surface_get_stride(p->surface) + 4 * (ptrdiff_t)column, 4);
    return value & 0xFFFFFF;
}

static int pixels_of(const picture *p, uint32_t color)
{
    int count = 0;
    for (int row = 0; row < p->height; row++)
        for (int column = 0; column < p->width; column++)
            count += pixel(p, column, row) == color;
    return count;
}

static void a_line_chart(void **state)
{
    (void)state;
    assert_int_equal(lk_line_chart_write(&lines, in_dir("line.png")), LK_OK);
    picture p = read_picture("line.png");
    assert_int_equal(p.width, 400);
    assert_int_equal(p.height, 300);
    assert_true(pixels_of(&p, 0x0072B2) > 300);
    assert_true(pixels_of(&p, 0xFFFFFF) > 400 * 300 / 2);
    cairo_surface_destroy(p.surface);
}

static void a_bar_chart(void **state)
{
    (void)state;
    const lk_bar bars[] = {{.label = "8", .value = 10, .low = 8, .high = 11}, {.label = "16", .value = NAN}};
    const lk_bar_chart chart = {.title = "t \xFF", .bars = bars, .bar_count = 2};
    assert_int_equal(lk_bar_chart_write(&chart, in_dir("bar.PNG")), LK_OK);
    picture p = read_picture("bar.PNG");
    assert_int_equal(p.width, 720);
    assert_int_equal(p.height, 440);
    assert_true(pixels_of(&p, 0x0072B2) > 72 * 200);
    cairo_surface_destroy(p.surface);
}

static lk_contact_sheet sheet_of(const void *images, lk_dtype dtype, int64_t channels)
{
    return (lk_contact_sheet){.images = images,
                              .dtype = dtype,
                              .count = 3,
                              .channels = channels,
                              .height = 2,
                              .width = 3,
                              .columns = 2,
                              .scale = 4};
}

/* The layout of sheet_of. */
enum { MARGIN = 10, CELL_WIDTH = 3 * 4 + 8, CELL_HEIGHT = 2 * 4 + 8 };

static uint32_t pixel_of_image(const picture *p, int image, int row, int column)
{
    int left = MARGIN + image % 2 * CELL_WIDTH, top = MARGIN + image / 2 * CELL_HEIGHT;
    uint32_t first = pixel(p, left + 4 * column, top + 4 * row);
    assert_int_equal(first, pixel(p, left + 4 * column + 3, top + 4 * row + 3));
    return first;
}

static void a_sheet_of_bytes(void **state)
{
    (void)state;
    unsigned char images[3 * 3 * 2 * 3];
    for (int i = 0; i < 54; i++)
        images[i] = (unsigned char)(4 * i);
    lk_contact_sheet sheet = sheet_of(images, LK_U8, 3);
    assert_int_equal(lk_contact_sheet_write(&sheet, in_dir("sheet.png")), LK_OK);
    picture p = read_picture("sheet.png");
    assert_int_equal(p.width, 2 * MARGIN + 2 * CELL_WIDTH - 8);
    assert_int_equal(p.height, 2 * MARGIN + 2 * CELL_HEIGHT - 8);
    for (int image = 0; image < 3; image++)
        for (int at = 0; at < 6; at++) {
            const unsigned char *red = images + 18 * image + at;
            uint32_t color = (uint32_t)red[0] << 16 | (uint32_t)red[6] << 8 | red[12];
            assert_int_equal(pixel_of_image(&p, image, at / 3, at % 3), color);
        }
    assert_int_equal(pixel(&p, p.width - MARGIN - 2, p.height - MARGIN - 2), 0xFFFFFF); /* the fourth cell is empty */
    cairo_surface_destroy(p.surface);
}

static void a_sheet_of_floats(void **state)
{
    (void)state;
    float images[18] = {-2, 0, 2, NAN, 1, 3};
    lk_contact_sheet sheet = sheet_of(images, LK_F32, 1);
    sheet.black = -2;
    sheet.white = 2;
    assert_int_equal(lk_contact_sheet_write(&sheet, in_dir("float.png")), LK_OK);
    picture p = read_picture("float.png");
    const uint32_t colors[] = {0x000000, 0x808080, 0xFFFFFF, 0xFF00FF, 0xBFBFBF, 0xFFFFFF};
    for (int at = 0; at < 6; at++)
        assert_int_equal(pixel_of_image(&p, 0, at / 3, at % 3), colors[at]);
    cairo_surface_destroy(p.surface);

    sheet.black = sheet.white = 0; /* the range is then -2 … 3 */
    assert_int_equal(lk_contact_sheet_write(&sheet, in_dir("float.png")), LK_OK);
    p = read_picture("float.png");
    assert_int_equal(pixel_of_image(&p, 0, 0, 0), 0x000000);
    assert_int_equal(pixel_of_image(&p, 0, 1, 2), 0xFFFFFF);
    assert_int_equal(pixel_of_image(&p, 0, 0, 1), 0x666666);
    cairo_surface_destroy(p.surface);
}

static void a_sheet_with_captions(void **state)
{
    (void)state;
    const unsigned char images[18] = {0};
    const char *const captions[] = {"a caption that is too wide for twelve pixels", NULL, ""};
    lk_contact_sheet sheet = sheet_of(images, LK_U8, 1);
    sheet.captions = captions;
    sheet.title = "a title";
    sheet.scale = 0;
    assert_int_equal(lk_contact_sheet_write(&sheet, in_dir("captions")), LK_OK);
    picture p = read_picture("captions");
    assert_int_equal(p.width, 2 * MARGIN + 2 * (3 * 34) + 8);
    cairo_surface_destroy(p.surface);
}

/* A title that is wider than the images widens the sheet, so that it is not cut. */
static void a_sheet_with_a_long_title(void **state)
{
    (void)state;
    const unsigned char images[18] = {0};
    lk_contact_sheet sheet = sheet_of(images, LK_U8, 1);
    int widths[2], inks[2];
    const char *const titles[] = {"a title that is long", "a title that is long, and longer"};
    for (int i = 0; i < 2; i++) {
        sheet.title = titles[i];
        assert_int_equal(lk_contact_sheet_write(&sheet, in_dir("title.png")), LK_OK);
        picture p = read_picture("title.png");
        widths[i] = p.width;
        inks[i] = 0;
        for (int row = 0; row < MARGIN + 28; row++)
            for (int column = 0; column < p.width; column++) {
                bool ink = pixel(&p, column, row) != 0xFFFFFF;
                inks[i] += ink;
                assert_true(!ink || (column >= MARGIN - 1 && column <= p.width - MARGIN));
            }
        cairo_surface_destroy(p.surface);
    }
    assert_true(widths[0] > 100 && widths[1] > widths[0] && inks[1] > inks[0]);
    for (failing f = fail_every(1); fail_next(&f);)
        stop_failing_with(&f, lk_contact_sheet_write(&sheet, in_dir("no-title.png")));
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    assert_int_equal(lk_line_chart_write(&lines, in_dir("no/such/line.png")), LK_ERR_IO);
    lk_error_clear();
}

/* If memory fails for any text, there is no picture. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (failing f = fail_every(1); fail_next(&f);) {
        stop_failing_with(&f, lk_line_chart_write(&lines, in_dir("memory.png")));
        assert_int_equal(access(in_dir("memory.png"), F_OK), f.reached ? -1 : 0);
    }
}

#else

static void png_is_unsupported(void **state)
{
    (void)state;
    assert_int_equal(lk_line_chart_write(&lines, in_dir("line.png")), LK_ERR_UNSUPPORTED);
    assert_non_null(strstr(lk_error_message(), "libcairo"));
    lk_error_clear();
    assert_int_equal(files_in_dir(test_dir), 0);
    print_message("SKIP: this build has no libcairo\n");
    skip();
}

#endif

static void sheets_that_make_no_sense(void **state)
{
    (void)state;
    const unsigned char images[18] = {0};
    const lk_contact_sheet good = {
        .images = images, .dtype = LK_U8, .count = 3, .channels = 1, .height = 2, .width = 3};
    lk_contact_sheet sheets[] = {good, good, good, good, good, good, good};
    sheets[0].count = 0;
    sheets[1].channels = 2;
    sheets[2].dtype = LK_F64;
    sheets[3].scale = 20000;
    sheets[4].columns = -1;
    sheets[5].black = NAN;
    sheets[6].width = INT64_MAX;
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        assert_int_equal(lk_contact_sheet_write(&sheets[i], in_dir("bad.png")), LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), "contact sheet"));
        lk_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef LK_HAVE_CAIRO
        cmocka_unit_test(a_line_chart),
        cmocka_unit_test(a_bar_chart),
        cmocka_unit_test(a_sheet_of_bytes),
        cmocka_unit_test(a_sheet_of_floats),
        cmocka_unit_test(a_sheet_with_captions),
        cmocka_unit_test(a_sheet_with_a_long_title),
        cmocka_unit_test(a_file_that_cannot_be_written),
        cmocka_unit_test(every_allocation_may_fail),
#else
        cmocka_unit_test(png_is_unsupported),
#endif
        cmocka_unit_test(sheets_that_make_no_sense),
    };
    return cmocka_run_group_tests_name("png_canvas", tests, make_test_dir, remove_test_dir);
}
