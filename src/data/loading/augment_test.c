/* The random choices for a sample, whole pictures against a reference in double precision, and that a loader gives the
 * same pictures whichever thread prepares them. */
#include "data/loading/augment.h"
#include "data/data_testing.h"

#include "base/mem.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>

enum { COUNT = 37, MAX_IMAGE = 3 * 32 * 32 };

static const lk_augment_opts everything = {.width_shift = 0.3,
                                           .height_shift = 0.2,
                                           .horizontal_flip = true,
                                           .crop_padding = 2,
                                           .cutout = 3,
                                           .center = true,
                                           .standardize = true};

static lk_augmentation augmentation_of(const lk_dataset *dataset, const lk_augment_opts *opts)
{
    lk_augmentation augmentation;
    lk_channel_moments moments;
    assert_ok(lk_dataset_moments(dataset, &moments));
    assert_ok(lk__augmentation_init(dataset, 11, true, opts, &moments, &augmentation));
    lk_channel_moments_free(&moments);
    return augmentation;
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

static double clamped(double value, double highest)
{
    return value < 0 ? 0 : value > highest ? highest : value;
}

/* The plane at real coordinates; outside it the edge pixels repeat. */
static double sampled(const uint8_t *plane, lk_plane_size size, double y, double x)
{
    y = clamped(y, (double)size.height - 1);
    x = clamped(x, (double)size.width - 1);
    double value = 0;
    for (int64_t i = 0; i < size.height; i++)
        for (int64_t j = 0; j < size.width; j++) {
            double weight = fmax(0, 1 - fabs(y - (double)i)) * fmax(0, 1 - fabs(x - (double)j));
            value += weight * plane[i * size.width + j] / 255.0;
        }
    return value;
}

/* Computes pixel (y, x) by undoing the augmentation step by step. */
static double expected_pixel(const uint8_t *plane, lk_plane_size size, const lk_augment_opts *opts,
                             const lk_augment_choice *choice, double mean, double deviation, int64_t y, int64_t x)
{
    int64_t top = choice->cutout_y - opts->cutout / 2, left = choice->cutout_x - opts->cutout / 2;
    if (y >= top && y < top + opts->cutout && x >= left && x < left + opts->cutout)
        return 0;
    y += choice->crop_down;
    x += choice->crop_right;
    double value = 0;
    if (y >= 0 && y < size.height && x >= 0 && x < size.width) {
        double column = (double)(choice->flipped ? size.width - 1 - x : x);
        value = sampled(plane, size, (double)y + choice->shift_down, column + choice->shift_right);
    }
    if (opts->center)
        value -= mean;
    return opts->standardize ? value / (deviation + 1e-6) : value;
}

static void check_pictures(lk_dataset *dataset, const lk_augment_opts *opts, int64_t epoch)
{
    static float image[MAX_IMAGE];
    lk_channel_moments moments;
    lk_augmentation augmentation = augmentation_of(dataset, opts);
    lk_plane_size size = augmentation.size;
    int64_t pixels = size.height * size.width, channels = augmentation.channels;
    assert_ok(lk_dataset_moments(dataset, &moments));
    for (int64_t sample = 0; sample < lk_dataset_count(dataset); sample++) {
        lk_augment_choice choice;
        lk__augmentation_choose(&augmentation, epoch, sample, &choice);
        assert_ok(lk_augment_sample(dataset, sample, 11, epoch, true, opts, &moments, image));
        for (int64_t i = 0; i < channels * pixels; i++) {
            int64_t c = i / pixels;
            const uint8_t *plane = lk_dataset_images(dataset) + (sample * channels + c) * pixels;
            double scale = opts->standardize ? moments.deviation[c] + 1e-6 : 1;
            double expected = expected_pixel(plane, size, opts, &choice, moments.mean[c], moments.deviation[c],
                                             i % pixels / size.width, i % size.width);
            if (fabs(image[i] - expected) > 1e-6 / scale)
                fail_msg("sample %d, value %d: %.9g, expected %.9g", (int)sample, (int)i, image[i], expected);
        }
    }
    lk_channel_moments_free(&moments);
    lk__augmentation_free(&augmentation);
}

static void check_all_settings(lk_dataset *dataset, int64_t crop, int64_t cutout)
{
    lk_augment_opts opts = {0};
    check_pictures(dataset, &opts, 0);
    opts.height_shift = 0.3;
    check_pictures(dataset, &opts, 1);
    opts.width_shift = 0.99;
    check_pictures(dataset, &opts, 2);
    opts.horizontal_flip = true;
    check_pictures(dataset, &opts, 3);
    opts.crop_padding = crop;
    check_pictures(dataset, &opts, 4);
    opts.center = true;
    check_pictures(dataset, &opts, 5);
    opts.standardize = true;
    opts.cutout = cutout;
    check_pictures(dataset, &opts, UINT32_MAX);
    check_pictures(dataset, &(lk_augment_opts){.horizontal_flip = true, .standardize = true}, 6);
    check_pictures(dataset, &(lk_augment_opts){.crop_padding = crop}, 7);
}

static void test_pictures(void **state)
{
    (void)state;
    static const struct {
        uint32_t channels, height, width;
        int64_t crop, cutout;
    } shapes[] = {{1, 11, 13, 4, 5}, {3, 8, 6, 5, 6}, {3, 5, 9, 1, 1}, {2, 1, 7, 0, 1}, {1, 6, 1, 0, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        lk_dataset *dataset = open_channels(COUNT, shapes[i].channels, shapes[i].height, shapes[i].width);
        check_all_settings(dataset, shapes[i].crop, shapes[i].cutout);
        lk_dataset_release(dataset);
    }
}

/* Shifts and flips do not change a single pixel; a channel without deviation is divided by 1e-6. */
static void test_one_pixel(void **state)
{
    (void)state;
    float image[1];
    lk_channel_moments moments;
    lk_dataset *dataset = open_channels(1, 1, 1, 1);
    lk_augment_opts opts = {.width_shift = 0.9, .height_shift = 0.9, .horizontal_flip = true};
    assert_ok(lk_dataset_moments(dataset, &moments));
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        assert_ok(lk_augment_sample(dataset, 0, 1, epoch, true, &opts, NULL, image));
        assert_true(image[0] == (float)(pixel_of(0, 0) / 255.0));
    }
    opts.standardize = opts.center = true;
    assert_ok(lk_augment_sample(dataset, 0, 1, 0, true, &opts, &moments, image));
    assert_true(isfinite(image[0]));
    opts.cutout = 1;
    assert_ok(lk_augment_sample(dataset, 0, 1, 0, true, &opts, &moments, image));
    assert_true(image[0] == 0);
    lk_channel_moments_free(&moments);
    lk_dataset_release(dataset);
}

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* Over many samples values are in range and reach near both ends; mean and frequencies are off by at most five standard
 * errors. */
static void test_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 20000, HEIGHT = 28, WIDTH = 20 };
    lk_dataset *dataset = open_pair(2, HEIGHT, WIDTH);
    lk_augmentation augmentation = augmentation_of(dataset, &everything);
    double down_sum = 0, right_sum = 0, down_least = 0, right_most = 0;
    int flips = 0, crops[5][5] = {0}, centers[HEIGHT][WIDTH] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        lk_augment_choice c;
        lk__augmentation_choose(&augmentation, i % 7, i, &c);
        assert_true(fabs(c.shift_down) <= 0.2 * HEIGHT && fabs(c.shift_right) <= 0.3 * WIDTH);
        down_sum += c.shift_down;
        right_sum += c.shift_right;
        down_least = fmin(down_least, c.shift_down);
        right_most = fmax(right_most, c.shift_right);
        flips += c.flipped;
        crops[c.crop_down + 2][c.crop_right + 2]++;
        centers[c.cutout_y][c.cutout_x]++;
    }
    assert_true(fabs(down_sum / DRAWS) < 5 * 0.2 * HEIGHT / sqrt(3.0 * DRAWS));
    assert_true(fabs(right_sum / DRAWS) < 5 * 0.3 * WIDTH / sqrt(3.0 * DRAWS));
    assert_true(down_least < -0.199 * HEIGHT && right_most > 0.299 * WIDTH);
    assert_true(fabs(flips - DRAWS / 2.0) < 5 * sqrt(DRAWS / 4.0));
    for (int i = 0; i < 25; i++)
        assert_true(fabs(crops[i / 5][i % 5] - DRAWS / 25.0) < 5 * sqrt(DRAWS / 25.0));
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        assert_true(centers[i / WIDTH][i % WIDTH] > 0);
    lk__augmentation_free(&augmentation);
    lk_dataset_release(dataset);
}

static bool same_choice(const lk_augment_choice *a, const lk_augment_choice *b)
{
    return a->shift_down == b->shift_down && a->shift_right == b->shift_right && a->flipped == b->flipped &&
           a->crop_down == b->crop_down && a->crop_right == b->crop_right && a->cutout_y == b->cutout_y &&
           a->cutout_x == b->cutout_x;
}

/* Seed, epoch and sample each change the choice; other settings do not. */
static void test_keys(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(2, 28, 28);
    lk_augmentation all = augmentation_of(dataset, &everything), other_seed = all;
    lk__augment_chances_init(&everything, 12, &other_seed.chances);
    lk_augment_choice c, again, epoch, sample, seed, alone;
    lk__augmentation_choose(&all, 3, 5, &c);
    lk__augmentation_choose(&all, 3, 5, &again);
    lk__augmentation_choose(&all, 4, 5, &epoch);
    lk__augmentation_choose(&all, 3, 6, &sample);
    lk__augmentation_choose(&other_seed, 3, 5, &seed);
    assert_true(same_choice(&c, &again));
    assert_false(same_choice(&c, &epoch) || same_choice(&c, &sample) || same_choice(&c, &seed));
    lk_augmentation only_width = augmentation_of(dataset, &(lk_augment_opts){.width_shift = 0.3});
    lk__augmentation_choose(&only_width, 3, 5, &alone);
    assert_true(alone.shift_right == c.shift_right && alone.shift_down == 0);
    lk_augmentation only_cutout = augmentation_of(dataset, &(lk_augment_opts){.cutout = 8});
    lk__augmentation_choose(&only_cutout, 3, 5, &alone);
    assert_true(alone.cutout_y == c.cutout_y && alone.cutout_x == c.cutout_x);
    lk__augmentation_free(&all);
    lk_dataset_release(dataset);
}

/* --- vertical flips, rotation, erasing, mixup ----------------------------------------------------------------------
 */

static void test_more_choices(void **state)
{
    (void)state;
    enum { DRAWS = 20000, SIDE = 28 };
    static const lk_augment_opts more = {.vertical_flip = true,
                                         .rotation = 30,
                                         .brightness = 0.5,
                                         .contrast = 0.25,
                                         .erase = 0.5,
                                         .mixup = 0.4,
                                         .rand_augment = 9};
    lk_dataset *dataset = open_pair(2, SIDE, SIDE);
    lk_augmentation augmentation = augmentation_of(dataset, &more);
    double degrees = 0, factors = 0, shares = 0;
    int flips = 0, erased = 0, operations[LK_RAND_OPERATIONS] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        lk_augment_choice c;
        lk__augmentation_choose(&augmentation, i % 7, i, &c);
        assert_true(fabs(c.degrees) <= 30 && c.brightness >= 0.5 && c.brightness <= 1.5 && c.contrast >= 0.75);
        assert_true(c.share >= 0 && c.share <= 1 && c.share * 256 == floor(c.share * 256));
        degrees += c.degrees;
        factors += c.contrast;
        shares += c.share;
        flips += c.flipped_down;
        erased += c.erase_height > 0;
        double area = (double)(c.erase_height * c.erase_width);
        assert_true(area < 0.45 * SIDE * SIDE && c.erase_top + c.erase_height <= SIDE);
        assert_true(c.erase_left >= 0 && c.erase_left + c.erase_width <= SIDE);
        for (int r = 0; r < LK_RAND_CHOICES; r++)
            operations[c.rand[r].operation]++;
        int64_t other = lk__augment_other(&c, i % 5, 5);
        assert_true(other >= 0 && other < 5 && other != i % 5);
    }
    assert_true(fabs(degrees / DRAWS) < 5 * 30 / sqrt(3.0 * DRAWS));
    assert_true(fabs(factors / DRAWS - 1) < 5 * 0.25 / sqrt(3.0 * DRAWS));
    assert_true(fabs(flips - DRAWS / 2.0) < 5 * sqrt(DRAWS / 4.0));
    assert_true(erased > 0.47 * DRAWS && erased < 0.52 * DRAWS);
    assert_true(fabs(shares / DRAWS - 1.4 / 1.8) < 0.01); /* the mean of Beta(1.4, 0.4) */
    for (int o = 0; o < LK_RAND_OPERATIONS; o++)
        assert_true(fabs(operations[o] - 2.0 * DRAWS / LK_RAND_OPERATIONS) <
                    5 * sqrt(2.0 * DRAWS / LK_RAND_OPERATIONS));
    lk__augmentation_free(&augmentation);
    lk_dataset_release(dataset);
}

/* Shares of mixup follow Beta(alpha + 1, alpha), whose distribution has a closed form for alpha 1 and 1/2. */
static void test_mixing_bounds(void **state)
{
    (void)state;
    const double pi = acos(-1), unit = 0x1p32;
    lk_augment_chances whole, half, none;
    lk__augment_chances_init(&(lk_augment_opts){.mixup = 1}, 1, &whole);
    lk__augment_chances_init(&(lk_augment_opts){.mixup = 0.5}, 1, &half);
    lk__augment_chances_init(&(lk_augment_opts){.mixup = 1e-300}, 1, &none);
    for (int i = 0; i < LK_MIXUP_PARTS; i++) {
        double x = (i + 0.5) / LK_MIXUP_PARTS, arc = asin(sqrt(x)) - sqrt(x * (1 - x));
        assert_true(fabs(whole.mixing[i] - unit * x * x) <= 1);
        assert_true(fabs(half.mixing[i] - unit * 2 / pi * arc) <= 1);
        assert_true(none.mixing[i] == 0);
    }
}

static void sample(lk_dataset *dataset, int64_t index, lk_augment_opts opts, float *image)
{
    assert_ok(lk_augment_sample(dataset, index, 11, 3, true, &opts, NULL, image));
}

static void test_more_pictures(void **state)
{
    (void)state;
    enum { SIDE = 12, VALUES = 3 * SIDE * SIDE };
    static float plain[VALUES], own[VALUES], other[VALUES], mixed[VALUES];
    lk_dataset *dataset = open_channels(COUNT, 3, SIDE, SIDE);
    lk_augment_opts flip = {.vertical_flip = true}, both = {.mixup = 1, .vertical_flip = true},
                    erase = {.erase = 1, .rotation = 45, .rand_augment = 30};
    lk_augmentation a = augmentation_of(dataset, &both), e = augmentation_of(dataset, &erase);
    for (int64_t i = 0; i < COUNT; i++) {
        lk_augment_choice c;
        char text[200];
        lk__augmentation_choose(&a, 3, i, &c);
        int64_t with = lk__augment_other(&c, i, COUNT);
        sample(dataset, i, (lk_augment_opts){.crop_padding = 0}, plain);
        sample(dataset, i, flip, own);
        sample(dataset, with, flip, other);
        sample(dataset, i, both, mixed);
        for (int v = 0; v < VALUES; v++) {
            int y = v / SIDE % SIDE, mirrored = v + (SIDE - 1 - 2 * y) * SIDE;
            assert_true(own[v] == plain[c.flipped_down ? mirrored : v]);
            assert_true(mixed[v] == (float)c.share * own[v] + (1 - (float)c.share) * other[v]);
        }
        assert_ok(lk_augment_describe(dataset, i, 11, 3, &both, text, sizeof text));
        assert_int_equal(strstr(text, "vflip") != NULL, c.flipped_down);
        assert_non_null(strstr(text, "mix "));
        lk__augmentation_choose(&e, 3, i, &c);
        sample(dataset, i, erase, mixed);
        assert_true(c.erase_height > 0);
        for (int v = 0; v < VALUES; v++) {
            int y = v / SIDE % SIDE, x = v % SIDE;
            assert_true(mixed[v] >= 0 && mixed[v] <= 1);
            if (y >= c.erase_top && y < c.erase_top + c.erase_height && x >= c.erase_left &&
                x < c.erase_left + c.erase_width)
                assert_true(mixed[v] == 0);
        }
    }
    lk__augmentation_free(&a);
    lk__augmentation_free(&e);
    lk_dataset_release(dataset);
}

static void test_description_fits(void **state)
{
    (void)state;
    const lk_augment_opts mixup = {.mixup = 1};
    char text[8] = "-------";
    lk_dataset *dataset = open_channels(COUNT, 3, 12, 12);
    assert_int_equal(lk_augment_describe(dataset, 0, 11, 3, &mixup, text + 4, 0), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_string_equal(text, "-------");
    assert_ok(lk_augment_describe(dataset, 0, 11, 3, &mixup, text, 4));
    assert_memory_equal(text, "mix\0---", 8);
    assert_ok(lk_augment_describe(dataset, 0, 11, 3, NULL, text, sizeof text));
    assert_string_equal(text, "");
    lk_dataset_release(dataset);
}

static void test_description_in_any_locale(void **state)
{
    (void)state;
    const lk_augment_opts opts = {.mixup = 1, .brightness = 0.4};
    char plain[128], text[128];
    lk_dataset *dataset = open_channels(COUNT, 3, 12, 12);
    assert_ok(lk_augment_describe(dataset, 0, 11, 3, &opts, plain, sizeof plain));
    assert_non_null(strstr(plain, "bright "));
    assert_null(strstr(plain, "0,"));
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        lk_dataset_release(dataset);
        print_message("SKIP: the locale de_DE.UTF-8 is not installed\n");
        skip();
    }
    lk_status status = lk_augment_describe(dataset, 0, 11, 3, &opts, text, sizeof text);
    setlocale(LC_NUMERIC, "C");
    lk_dataset_release(dataset);
    assert_ok(status);
    assert_string_equal(text, plain);
}

/* --- loader ------------------------------------------------------------------------------------------------------- */

static void check_epoch(lk_dataset *dataset, const lk_loader_opts *opts, int64_t epoch, int64_t first_batch)
{
    static float expected[MAX_IMAGE];
    int64_t values = lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
    lk_loader *loader;
    assert_ok(lk_loader_new(dataset, opts, &loader));
    assert_ok(lk_loader_start_at(loader, epoch, first_batch));
    int64_t seen = 0;
    for (;;) {
        lk_batch *batch;
        assert_ok(lk_loader_next(loader, &batch));
        if (!batch)
            break;
        for (int64_t i = 0; i < batch->count; i++, seen++) {
            assert_ok(lk_augment_sample(dataset, batch->indices[i], opts->seed, epoch, !opts->evaluation, opts->augment,
                                        opts->moments, expected));
            assert_memory_equal(batch->images + i * values, expected, (size_t)values * sizeof(float));
        }
        lk_batch_release(batch);
    }
    assert_int_equal(seen, lk_dataset_count(dataset) - first_batch * opts->batch_size);
    lk_loader_release(loader);
}

/* The same bits for any batch size and number of workers, from any batch on. */
static void test_loader(void **state)
{
    (void)state;
    static const int64_t batch_sizes[] = {1, 5, COUNT};
    lk_dataset *dataset = open_channels(COUNT, 3, 9, 10);
    lk_channel_moments moments;
    assert_ok(lk_dataset_moments(dataset, &moments));
    for (int b = 0; b < 3; b++)
        for (int workers = 0; workers < 4; workers++)
            for (int evaluation = 0; evaluation < 2; evaluation++) {
                lk_loader_opts opts = {.batch_size = batch_sizes[b],
                                       .seed = 9,
                                       .shuffle = !evaluation,
                                       .workers = workers,
                                       .augment = &everything,
                                       .moments = &moments,
                                       .evaluation = evaluation};
                check_epoch(dataset, &opts, 0, 0);
                check_epoch(dataset, &opts, 8, 0);
                if (b < 2)
                    check_epoch(dataset, &opts, 8, 3);
            }
    lk_channel_moments_free(&moments);
    lk_dataset_release(dataset);
}

/* The caller's rounding mode changes no bit, and stays. */
static void test_rounding(void **state)
{
    (void)state;
    enum { SIDE = 12, VALUES = 3 * SIDE * SIDE };
    static float nearest[COUNT][VALUES];
    float plain[VALUES], upward[VALUES];
    lk_dataset *dataset = open_channels(COUNT, 3, SIDE, SIDE);
    lk_channel_moments moments, again;
    lk_augment_opts augment = everything, parsed = everything;
    const char *more = "rotate=10,brightness=0.2,contrast=0.3,rand=9,erase=0.25,mixup=0.2";
    assert_ok(lk_augment_parse(more, &augment));
    augment.center = augment.standardize = true;
    assert_ok(lk_dataset_moments(dataset, &moments));
    for (int64_t i = 0; i < COUNT; i++)
        assert_ok(lk_augment_sample(dataset, i, 9, 3, true, &augment, &moments, nearest[i]));
    assert_ok(lk_dataset_read(dataset, 0, plain));

    assert_int_equal(fesetround(FE_UPWARD), 0);
    assert_ok(lk_augment_parse(more, &parsed));
    assert_true(parsed.contrast == augment.contrast && parsed.mixup == augment.mixup);
    assert_ok(lk_dataset_moments(dataset, &again));
    assert_memory_equal(again.mean, moments.mean, 3 * sizeof *moments.mean);
    assert_memory_equal(again.deviation, moments.deviation, 3 * sizeof *moments.deviation);
    assert_ok(lk_dataset_read(dataset, 0, upward));
    assert_memory_equal(upward, plain, sizeof plain);
    for (int64_t i = 0; i < COUNT; i++) {
        assert_ok(lk_augment_sample(dataset, i, 9, 3, true, &augment, &moments, upward));
        assert_memory_equal(upward, nearest[i], sizeof upward);
    }
    for (int workers = 0; workers < 3; workers += 2) {
        lk_loader *loader;
        lk_batch *batch;
        lk_loader_opts opts = {
            .batch_size = COUNT, .seed = 9, .workers = workers, .augment = &augment, .moments = &moments};
        assert_ok(lk_loader_new(dataset, &opts, &loader));
        assert_ok(lk_loader_start(loader, 3));
        assert_ok(lk_loader_next(loader, &batch));
        assert_memory_equal(batch->images, nearest, sizeof nearest);
        lk_batch_release(batch);
        lk_loader_release(loader);
    }
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    lk_channel_moments_free(&moments);
    lk_channel_moments_free(&again);
    lk_dataset_release(dataset);
}

/* A loader copies its settings. */
static void test_loader_copies(void **state)
{
    (void)state;
    lk_dataset *dataset = open_channels(COUNT, 2, 9, 10);
    lk_channel_moments moments;
    assert_ok(lk_dataset_moments(dataset, &moments));
    lk_augment_opts *augment = malloc(sizeof *augment);
    assert_non_null(augment);
    *augment = everything;
    lk_loader_opts opts = {.batch_size = 4, .augment = augment, .moments = &moments, .workers = 1};
    lk_loader *loader;
    lk_batch *batch;
    float expected[2 * 9 * 10];
    assert_ok(lk_augment_sample(dataset, 1, 0, 0, true, augment, &moments, expected));
    assert_ok(lk_loader_new(dataset, &opts, &loader));
    free(augment);
    lk_channel_moments_free(&moments);
    assert_ok(lk_loader_start(loader, 0));
    assert_ok(lk_loader_next(loader, &batch));
    assert_memory_equal(batch->images + 2 * 9 * 10, expected, sizeof expected);
    lk_batch_release(batch);
    lk_loader_release(loader);
    lk_dataset_release(dataset);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void refuse(lk_dataset *dataset, lk_augment_opts opts, const lk_channel_moments *moments, const char *says)
{
    float image[1] = {-3};
    lk_loader *loader;
    lk_loader_opts loading = {.batch_size = 2, .augment = &opts, .moments = moments};
    expect_failure(lk_augment_sample(dataset, 0, 0, 0, true, &opts, moments, image), LK_ERR_ARGUMENT, says);
    expect_failure(lk_loader_new(dataset, &loading, &loader), LK_ERR_ARGUMENT, says);
    assert_null(loader);
    assert_true(image[0] == -3);
}

static void test_errors(void **state)
{
    (void)state;
    float image[9 * 10];
    double of_two[2] = {0};
    lk_channel_moments two = {.mean = of_two, .deviation = of_two, .channels = 2};
    lk_dataset *dataset = open_pair(COUNT, 9, 10);
    refuse(dataset, (lk_augment_opts){.width_shift = 1}, NULL, "width shift 1: expected a share of the image's size");
    refuse(dataset, (lk_augment_opts){.height_shift = -0.1}, NULL, "height shift -0.1: expected");
    refuse(dataset, (lk_augment_opts){.height_shift = NAN}, NULL, "height shift nan: expected");
    refuse(dataset, (lk_augment_opts){.crop_padding = -1}, NULL,
           "--augment crop=-1: expected 0 to 8 for images of 9x10");
    refuse(dataset, (lk_augment_opts){.crop_padding = 9}, NULL, "--augment crop=9: expected 0 to 8 for images of 9x10");
    refuse(dataset, (lk_augment_opts){.cutout = -2}, NULL, "--augment cutout=-2: expected 0 to 9");
    refuse(dataset, (lk_augment_opts){.cutout = 10}, NULL, "--augment cutout=10: expected 0 to 9");
    refuse(dataset, (lk_augment_opts){.rotation = 181}, NULL, "--augment rotate=181: expected 0 to 180");
    refuse(dataset, (lk_augment_opts){.brightness = NAN}, NULL, "--augment brightness=nan: expected 0 to 1");
    refuse(dataset, (lk_augment_opts){.contrast = 1.5}, NULL, "--augment contrast=1.5: expected 0 to 1");
    refuse(dataset, (lk_augment_opts){.erase = -1}, NULL, "--augment erase=-1: expected 0 to 1");
    refuse(dataset, (lk_augment_opts){.mixup = 2}, NULL, "--augment mixup=2: expected 0 to 1");
    refuse(dataset, (lk_augment_opts){.rand_augment = 31}, NULL, "--augment rand=31: expected 0 to 30");
    refuse(dataset, (lk_augment_opts){.center = true}, NULL, "lk_dataset_moments");
    refuse(dataset, (lk_augment_opts){.standardize = true}, &two, "moments of 2 channels for images of 1");
    expect_failure(lk_augment_sample(dataset, COUNT, 0, 0, true, NULL, NULL, image), LK_ERR_ARGUMENT,
                   "sample 37: expected 0 to 36");
    expect_failure(lk_augment_sample(dataset, -1, 0, 0, true, NULL, NULL, image), LK_ERR_ARGUMENT, "sample -1");
    expect_failure(lk_augment_sample(dataset, 0, 0, -1, true, NULL, NULL, image), LK_ERR_ARGUMENT, "epoch -1");
    expect_failure(lk_augment_sample(dataset, 0, 0, 1LL << 32, true, NULL, NULL, image), LK_ERR_ARGUMENT,
                   "epoch 4294967296: expected 0 to 4294967295");
    lk_dataset_release(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_pictures),
        FOLDER_TEST(test_one_pixel),
        FOLDER_TEST(test_distribution),
        FOLDER_TEST(test_keys),
        FOLDER_TEST(test_loader),
        FOLDER_TEST(test_rounding),
        FOLDER_TEST(test_loader_copies),
        FOLDER_TEST(test_errors),
        FOLDER_TEST(test_more_choices),
        FOLDER_TEST(test_more_pictures),
        FOLDER_TEST(test_description_fits),
        FOLDER_TEST(test_description_in_any_locale),
        cmocka_unit_test(test_mixing_bounds),
    };
    return cmocka_run_group_tests_name("augment", tests, NULL, NULL);
}
