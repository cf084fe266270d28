#include "data/data_testing.h"
#include "data/loading/augment.h"

#include <locale.h>

static lk_augment_opts parsed(const char *text)
{
    lk_augment_opts opts = {
        .width_shift = 0.9, .cutout = 7, .crop_padding = 5, .horizontal_flip = true, .center = true};
    assert_ok(lk_augment_parse(text, &opts));
    assert_true(opts.center && !opts.standardize);
    return opts;
}

static void check(const char *text, double width, double height, bool flip, int64_t crop, int64_t cutout)
{
    lk_augment_opts opts = parsed(text);
    assert_true(opts.width_shift == width && opts.height_shift == height);
    assert_int_equal(opts.horizontal_flip, flip);
    assert_int_equal(opts.crop_padding, crop);
    assert_int_equal(opts.cutout, cutout);
}

static void test_words(void **state)
{
    (void)state;
    check("shift=0.2,flip,crop=4,cutout=8", 0.2, 0.2, true, 4, 8);
    check("width-shift=0.1", 0.1, 0, false, 0, 0);
    check("height-shift=.25,width-shift=0.1", 0.1, 0.25, false, 0, 0);
    check("shift=0.2,height-shift=0", 0.2, 0, false, 0, 0);
    check("cutout=8,flip", 0, 0, true, 0, 8);
    check("crop=4,crop=2", 0, 0, false, 2, 0);
    check("crop=0,shift=0,cutout=0", 0, 0, false, 0, 0);
}

static void test_more_words(void **state)
{
    (void)state;
    lk_augment_opts opts = parsed("vflip,rotate=15,brightness=0.2,contrast=.3,rand=9,erase=0.25,mixup=0.4");
    assert_true(opts.vertical_flip && opts.rotation == 15 && opts.brightness == 0.2 && opts.contrast == 0.3);
    assert_true(opts.rand_augment == 9 && opts.erase == 0.25 && opts.mixup == 0.4);
    assert_true(!opts.horizontal_flip && opts.crop_padding == 0);
}

static void test_nothing(void **state)
{
    (void)state;
    check("none", 0, 0, false, 0, 0);
    check("", 0, 0, false, 0, 0);
    check(NULL, 0, 0, false, 0, 0);
}

static void test_wrong_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"flop", "unknown augmentation 'flop': did you mean 'flip'?"},
        {"shift=0.1,crpo=4", "unknown augmentation 'crpo=4': did you mean 'crop'?"},
        {"rotation", "unknown augmentation 'rotation': expected words of shift=S"},
        {"flip,", "unknown augmentation '': expected words of"},
        {",flip", "unknown augmentation '': expected words of"},
        {"=3", "unknown augmentation '=3': expected words of"},
        {"flip, crop=4", "unknown augmentation ' crop=4': did you mean 'crop'?"},
        {"shift=1.5",
         "augmentation 'shift=1.5': expected shift=SHARE, a share of width and height of at least 0 and below 1"},
        {"width-shift=1", "augmentation 'width-shift=1': expected width-shift=SHARE, a share of the width"},
        {"height-shift=-0.1", "augmentation 'height-shift=-0.1': expected height-shift=SHARE"},
        {"shift=nan", "augmentation 'shift=nan'"},
        {"shift=0x1p-2", "augmentation 'shift=0x1p-2'"},
        {"shift=", "augmentation 'shift=': expected shift=SHARE"},
        {"shift", "augmentation 'shift': expected shift=SHARE"},
        {"flip=1", "augmentation 'flip=1': expected flip, without a value"},
        {"crop=-4", "augmentation 'crop=-4': expected crop=PIXELS, a padding of 0 or more"},
        {"crop=2.5", "augmentation 'crop=2.5': expected crop=PIXELS"},
        {"cutout=-1", "augmentation 'cutout=-1': expected cutout=PIXELS, a side of 0 or more"},
        {"cutout=99999999999999999999", "augmentation 'cutout=9999"},
        {"rotate=200", "augmentation 'rotate=200': expected rotate=DEGREES, an angle of 0 to 180"},
        {"rand=31", "augmentation 'rand=31': expected rand=MAGNITUDE"},
        {"rand=1.5", "augmentation 'rand=1.5': expected rand=MAGNITUDE"},
        {"mixup=1.1", "augmentation 'mixup=1.1': expected mixup=ALPHA, 0 to 1"},
        {"vflip=1", "augmentation 'vflip=1': expected vflip, without a value"},
        {"flip,none", "augmentation 'flip,none': 'none' stands alone"},
        {"none,flip", "augmentation 'none,flip': 'none' stands alone"},
        {"cutout=0000000000000000000000000000000000000000000000000000000000000000008",
         "unknown augmentation 'cutout=000"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        lk_augment_opts opts = {.cutout = 7, .width_shift = 0.5};
        expect_failure(lk_augment_parse(wrong[i].text, &opts), LK_ERR_ARGUMENT, wrong[i].says);
        assert_true(opts.cutout == 7 && opts.width_shift == 0.5);
    }
}

/* A thread keeps its first error. */
static void test_keeps_an_earlier_error(void **state)
{
    (void)state;
    lk_augment_opts opts;
    expect_failure(lk_augment_parse("shift=1.5", &opts), LK_ERR_ARGUMENT, "");
    assert_int_not_equal(lk_augment_parse("crop=-1", &opts), LK_OK);
    assert_int_not_equal(lk_augment_parse("shift=7", &opts), LK_OK);
    expect_failure(LK_ERR_ARGUMENT, LK_ERR_ARGUMENT, "crop=-1");
}

static void test_texts_that_agree(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool agree;
    } texts[] = {
        {"flip,crop=4", "crop=4,flip", true},
        {"flip,crop=4", "flip,crop=4,mixup=0", true},
        {"shift=0.2", "height-shift=0.20,width-shift=0.2", true},
        {"", "none", true},
        {"flip,crop=4", "flip,crop=5", false},
        {"flip", "vflip", false},
        {"flip", "", false},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(lk__augment_texts_agree(texts[i].a, texts[i].b), texts[i].agree);
}

static void test_any_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("SKIP: the locale de_DE.UTF-8 is not installed\n");
        skip();
    }
    check("shift=0.25", 0.25, 0.25, false, 0, 0);
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_more_words),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_keeps_an_earlier_error),
        cmocka_unit_test(test_texts_that_agree),
        cmocka_unit_test(test_any_locale),
    };
    return cmocka_run_group_tests_name("augment_parse", tests, NULL, NULL);
}
