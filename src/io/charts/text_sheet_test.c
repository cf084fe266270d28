/* Images as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/build.h"
#include "lockstep/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(const lk_contact_sheet *sheet, lk_text_style style, const char *expected)
{
    char *text = lk_contact_sheet_text(sheet, style);
    assert_non_null(text);
    assert_string_equal(text, expected);
    lk_free(text);
}

/* Two rows of pixels make one row of characters; a missing last row is black. */
static void gray_becomes_characters(void **state)
{
    (void)state;
    static const uint8_t images[] = {0,   255, 128, 0,   255, 128, 255, 255, 0, /* an image of 3x3, and its negative */
                                     255, 0,   127, 255, 0,   127, 0,   0,   255};
    static const char *const captions[] = {"black\n3x3", NULL};
    lk_contact_sheet sheet = {
        .images = images, .dtype = LK_U8, .count = 2, .channels = 1, .height = 3, .width = 3, .captions = captions};
    expect(&sheet, (lk_text_style){.columns = 24, .ascii = true}, " @+  @ =\n==     =\nbla  \n3x3  \n");
    sheet.captions = (const char *const[]){"a\n\nb", "c\n"}; /* a blank line in the middle */
    expect(&sheet, (lk_text_style){.columns = 24, .ascii = true}, " @+  @ =\n==     =\na    c\n     \nb    \n");
}

static void colors_are_those_of_terminals(void **state)
{
    (void)state;
    static const float image[] = {-1, 1, 1, -1, -1, 1}; /* red and gray-blue: [3,1,2] */
    lk_contact_sheet sheet = {
        .images = image, .dtype = LK_F32, .count = 1, .channels = 3, .height = 1, .width = 2, .black = -1, .white = 1};
    expect(&sheet, (lk_text_style){.columns = 24, .color = true},
           "\x1b[38;5;46;48;5;16m▀\x1b[38;5;201;48;5;16m▀\x1b[0m\n");
    expect(&sheet, (lk_text_style){.columns = 24, .color = true, .ascii = true},
           "\x1b[48;5;28m \x1b[48;5;90m \x1b[0m\n");
}

/* 60 pixels become 20, and each row holds as many images as fit. */
static void large_images_shrink(void **state)
{
    (void)state;
    static uint8_t images[3][4][60];
    memset(images[1], 255, sizeof images[1]);
    lk_contact_sheet sheet = {.images = images, .dtype = LK_U8, .count = 3, .channels = 1, .height = 4, .width = 60};
    char *text = lk_contact_sheet_text(&sheet, (lk_text_style){.columns = 50, .ascii = true});
    assert_non_null(text);
    assert_string_equal(text, "                      @@@@@@@@@@@@@@@@@@@@\n                    \n");
    lk_free(text);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    uint8_t image[4] = {0};
    lk_contact_sheet sheet = {.images = image, .dtype = LK_U8, .count = 1, .channels = 2, .height = 1, .width = 2};
    assert_null(lk_contact_sheet_text(&sheet, (lk_text_style){.columns = 50}));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
    sheet.channels = 1;
    assert_null(lk_contact_sheet_text(&sheet, (lk_text_style){.columns = 10}));
    assert_string_equal(lk_error_message(), "sheet of images: 10 columns; must be from 24 to 1000");
    lk_error_clear();
}

static void locales_are_spelled_in_many_ways(void **state)
{
    (void)state;
    const struct {
        const char *locale;
        bool ascii;
    } cases[] = {
        {"C", true}, {"de_DE.ISO-8859-1", true}, {"C.UTF-8", false}, {"C.utf8", false}, {"en_US.utf-8", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("LC_ALL", cases[i].locale, 1);
        assert_int_equal(lk_text_style_of(stderr).ascii, cases[i].ascii);
    }
    unsetenv("LC_ALL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gray_becomes_characters),
        cmocka_unit_test(colors_are_those_of_terminals),
        cmocka_unit_test(large_images_shrink),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(locales_are_spelled_in_many_ways),
    };
    return cmocka_run_group_tests_name("text_sheet", tests, NULL, NULL);
}
