/* Single pictures. Those of tests/data/pictures must decode to the same bits as with Pillow
 * (tests/data/make_pictures.py), and malicious or damaged files must be refused. */
#include "base/mem.h"
#include "data/data_testing.h"

#include "lockstep/build.h"
#include "lockstep/image.h"

#include <sys/resource.h>
#include <unistd.h>

enum { HEIGHT = 29, WIDTH = 37 };

static const char *stored(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/pictures/%s", LK_TEST_DATA, name);
    return path;
}

static void needs(const char *library)
{
    if (!lk_build_has(library))
        skip();
}

static bytes contents(const char *path)
{
    bytes b = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t chunk[4096];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;)
        append(&b, chunk, got);
    fclose(file);
    return b;
}

static void expect_same(const lk_image *a, const lk_image *b)
{
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->width, b->width);
    assert_memory_equal(a->pixels, b->pixels, (size_t)(a->channels * a->height * a->width));
}

/* Expects the picture, read with `opts`, to equal the PGM or PPM file that Pillow has made. */
static void expect_stored(const char *name, const lk_image_opts *opts, const char *expected)
{
    lk_image image, there;
    assert_ok(lk_image_read(stored(name), opts, &image));
    assert_ok(lk_image_read(stored(expected), NULL, &there));
    expect_same(&image, &there);
    lk_image_free(&image);
    lk_image_free(&there);
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

static void reads_pgm_and_ppm(void **state)
{
    (void)state;
    static const char ppm[] = "P3 # red and blue\n2 1\n4\n4 0 0\n0 2 4\n";
    lk_image image;
    assert_ok(lk_image_decode(ppm, sizeof ppm - 1, "ppm", NULL, &image));
    assert_int_equal(image.channels, 3);
    assert_int_equal(image.height, 1);
    assert_int_equal(image.width, 2);
    assert_memory_equal(image.pixels, ((uint8_t[]){255, 0, 0, 128, 0, 255}), 6);
    lk_image_free(&image);

    static const uint8_t pgm[] = "P5\n2 2\n65535\n\x00\x00\xff\xff\x80\x00\x01\x01";
    assert_ok(lk_image_decode(pgm, sizeof pgm - 1, "pgm", NULL, &image));
    assert_int_equal(image.channels, 1);
    assert_memory_equal(image.pixels, ((uint8_t[]){0, 255, 128, 1}), 4);
    lk_image_free(&image);
}

static void reads_png(void **state)
{
    (void)state;
    needs("libpng");
    lk_image image;
    assert_ok(lk_image_read_header(stored("color.png"), &image));
    assert_int_equal(image.channels, 3);
    assert_int_equal(image.height, HEIGHT);
    assert_int_equal(image.width, WIDTH);
    assert_null(image.pixels);
    expect_stored("color.png", NULL, "color.png.ppm");
    expect_stored("palette.png", NULL, "palette.png.ppm");
    expect_stored("transparent.png", NULL, "palette.png.ppm");
    expect_stored("interlaced.png", NULL, "color.png.ppm");
    expect_stored("alpha.png", NULL, "alpha.png.ppm");
    expect_stored("one_bit.png", NULL, "one_bit.png.pgm");
}

/* Only as much of a file is read as the header needs. */
static void reads_headers_alone(void **state)
{
    (void)state;
    lk_image image;
    bytes pgm = {0}, png = {0};
    append(&pgm, "P5 7 5 255 ", 11);
    write_file(in_dir("large.pgm"), &pgm);
    assert_int_equal(truncate(in_dir("large.pgm"), 200 << 20), 0);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_ok(lk_image_read_header(in_dir("large.pgm"), &image));
    getrusage(RUSAGE_SELF, &after);
    assert_true(image.channels == 1 && image.height == 5 && image.width == 7);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
    drop(&pgm);
    needs("libpng");
    enum { BEFORE = 8 + 25, TEXT = 100000 }; /* the signature, and the header's chunk */
    static uint8_t text[TEXT];
    bytes plain = contents(stored("gray.png"));
    append(&png, plain.data, BEFORE);
    append_chunk(&png, "tEXt", text, TEXT);
    append(&png, plain.data + BEFORE, plain.size - BEFORE);
    write_file(in_dir("text.png"), &png);
    assert_ok(lk_image_read_header(in_dir("text.png"), &image));
    assert_true(image.height == HEIGHT && image.width == WIDTH);
    png.size = BEFORE + 90000;
    write_file(in_dir("cut.png"), &png);
    expect_failure(lk_image_read_header(in_dir("cut.png"), &image), LK_ERR_FORMAT, "cut.png: truncated");
    drop(&plain);
    drop(&png);
}

/* Pillow truncates 16 bits to 8; the library scales them, as PNG's specification says. */
static void reads_png_of_sixteen_bits(void **state)
{
    (void)state;
    needs("libpng");
    lk_image image;
    assert_ok(lk_image_read(stored("sixteen_bits.png"), NULL, &image));
    assert_int_equal(image.channels, 1);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            assert_int_equal(image.pixels[y * WIDTH + x], ((x * 1771 + y * 911) % 65536 * 255 + 32767) / 65535);
    lk_image_free(&image);
}

static void reads_jpeg(void **state)
{
    (void)state;
    needs("libjpeg");
    expect_stored("gray.jpg", NULL, "gray.jpg.pgm");
    expect_stored("color.jpg", NULL, "color.jpg.ppm");
    expect_stored("progressive.jpg", NULL, "progressive.jpg.ppm");
    expect_stored("cmyk.jpg", NULL, "cmyk.jpg.ppm");
}

static void changes_channels(void **state)
{
    (void)state;
    needs("libjpeg");
    expect_stored("color.jpg", &(lk_image_opts){.channels = 1}, "color.jpg.pgm");
    lk_image gray, color;
    assert_ok(lk_image_read(stored("gray.jpg"), NULL, &gray));
    assert_ok(lk_image_read(stored("gray.jpg"), &(lk_image_opts){.channels = 3}, &color));
    assert_int_equal(color.channels, 3);
    for (int c = 0; c < 3; c++)
        assert_memory_equal(color.pixels + c * HEIGHT * WIDTH, gray.pixels, HEIGHT * WIDTH);
    lk_image_free(&gray);
    lk_image_free(&color);
}

static void resizes_as_pillow_does(void **state)
{
    (void)state;
    static const struct {
        int64_t height, width;
        const char *expected;
    } sizes[] = {{11, 12, "color.png.11x12.ppm"},
                 {28, 28, "color.png.28x28.ppm"},
                 {50, 90, "color.png.50x90.ppm"},
                 {29, 20, "color.png.29x20.ppm"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        expect_stored("color.png.ppm", &(lk_image_opts){.height = sizes[i].height, .width = sizes[i].width},
                      sizes[i].expected);
    needs("libpng");
    expect_stored("gray.png", &(lk_image_opts){.height = 28, .width = 28}, "gray.png.28x28.pgm");
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refuse_bytes(const void *data, size_t size, const char *text)
{
    lk_image image;
    expect_failure(lk_image_decode(data, size, "it", NULL, &image), LK_ERR_FORMAT, "it: ", text);
    assert_null(image.pixels);
}

static void refuses_what_is_no_picture(void **state)
{
    (void)state;
    lk_image image;
    refuse_bytes("", 0, "is empty");
    refuse_bytes("<", 1, "is no picture: one byte, 3c, expected");
    refuse_bytes("<html>", 6, "is no picture of a known format: begins with bytes 3c 68");
    expect_failure(lk_image_read(in_dir("none"), NULL, &image), LK_ERR_IO, "cannot be opened");
    expect_failure(lk_image_read(test_dir, NULL, &image), LK_ERR_IO, "is not a regular file");
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    expect_failure(lk_image_read(in_dir("fifo"), NULL, &image), LK_ERR_IO, "is not a regular file");
    expect_failure(lk_image_read(in_dir("none"), &(lk_image_opts){.channels = 2}, &image), LK_ERR_ARGUMENT,
                   "2 channels");
    expect_failure(lk_image_read(in_dir("none"), &(lk_image_opts){.height = 2}, &image), LK_ERR_ARGUMENT, "2x0");
}

static void refuses_damaged_pnm(void **state)
{
    (void)state;
    refuse_bytes("P5\n2 2\n255\n123", 14, "the header promises 4 bytes of pixels, but there are 3");
    refuse_bytes("GIF89a", 6, "is no picture of a known format: begins with bytes 47 49, expected one of ");
    refuse_bytes("P5\n2 x", 6, "no height at offset 5");
    refuse_bytes("P5\n2", 4, "truncated PGM or PPM data: no height");
    refuse_bytes("P5\n2 2\n65536\n", 13, "largest value 65536 at offset 7: expected at most 65535");
    refuse_bytes("P5\n0 2\n255\n", 11, "expected at least 1");
    refuse_bytes("P5\n0000000028 28\n255\n", 21, "width at offset 3: more than 9 digits");
    refuse_bytes("P5\n1 1\n255X1", 12, "no white space at offset 10, behind the largest value");
    refuse_bytes("P2\n1 1\n7\n8\n", 11, "value 8 at offset 9: expected at most 7");
    refuse_bytes("P6\n999999999 999999999\n255\n", 27, "expected at most 67108864 in all");
}

/* Cut to every length, and with every byte changed, a file gives an error or a picture, and takes no more memory than
 * its header promises. */
static void survives_damage(const char *name)
{
    bytes whole = contents(stored(name));
    lk_image image;
    for (size_t size = 0; size + 13 < whole.size; size += 1 + whole.size / 97)
        refuse_bytes(whole.data, size, size ? " " : "is empty");
    for (size_t i = 0; i < whole.size; i++) {
        whole.data[i] ^= (uint8_t)(1 << i % 8);
        if (lk_image_decode(whole.data, whole.size, "it", NULL, &image) != LK_OK)
            assert_true(lk_error_status() == LK_ERR_FORMAT && strstr(lk_error_message(), "it: "));
        lk_error_clear();
        lk_image_free(&image);
        whole.data[i] ^= (uint8_t)(1 << i % 8);
    }
    drop(&whole);
}

static void survives_damaged_png(void **state)
{
    (void)state;
    needs("libpng");
    survives_damage("color.png");
    survives_damage("palette.png");
    survives_damage("interlaced.png");
    survives_damage("gray.png");
}

static void survives_damaged_jpeg(void **state)
{
    (void)state;
    needs("libjpeg");
    survives_damage("color.jpg");
    survives_damage("progressive.jpg");
    survives_damage("cmyk.jpg");
}

static void refuses_jpeg_of_two_components(void **state)
{
    (void)state;
    needs("libjpeg");
    static const uint8_t two[] = {0xff, 0xd8, 0xff, 0xc0, 0,    14, 8,  0, 8, 0, 8, 2, 1, 0x11, 0,
                                  2,    0x11, 0,    0xff, 0xda, 0,  10, 2, 1, 0, 2, 0, 0, 63,   0};
    refuse_bytes(two, sizeof two, "expected 1, 3 or 4");
}

static int64_t allocations_to_decode(const bytes *file)
{
    lk_image image;
    lk__mem_fail_at(INT64_MAX);
    lk_status status = lk_image_decode(file->data, file->size, "it", NULL, &image);
    int64_t allocations = lk__mem_allocations();
    lk__mem_fail_at(-1);
    assert_ok(status);
    assert_int_equal(image.height, HEIGHT);
    lk_image_free(&image);
    return allocations;
}

/* Texts are skipped, whatever they would decode to. */
static void does_not_decode_texts_in_png(void **state)
{
    (void)state;
    needs("libpng");
    static uint8_t text[1000], packed[2000] = "name\0";
    uLongf size = sizeof packed - 6;
    assert_int_equal(compress(packed + 6, &size, text, sizeof text), Z_OK);
    enum { BEFORE = 8 + 25 }; /* the signature, and the header's chunk */
    bytes plain = contents(stored("gray.png")), with_texts = {0};
    append(&with_texts, plain.data, BEFORE);
    for (int i = 0; i < 40; i++)
        append_chunk(&with_texts, "zTXt", packed, 6 + size);
    append(&with_texts, plain.data + BEFORE, plain.size - BEFORE);
    assert_int_equal(allocations_to_decode(&with_texts), allocations_to_decode(&plain));
    drop(&plain);
    drop(&with_texts);
}

/* A small file whose header promises 60,000 x 60,000 pixels takes no memory. */
static void refuses_bombs(void **state)
{
    (void)state;
    needs("libpng");
    needs("libjpeg");
    bytes png = contents(stored("gray.png")), jpeg = contents(stored("gray.jpg"));
    static const uint8_t large[] = {0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60};
    memcpy(png.data + 16, large, sizeof large);
    uLong sum = crc32(0, png.data + 12, 17);
    for (int i = 0; i < 4; i++)
        png.data[29 + i] = (uint8_t)(sum >> (24 - 8 * i));
    size_t frame = 0;
    while (jpeg.data[frame] != 0xff || jpeg.data[frame + 1] != 0xc0)
        frame++;
    static const uint8_t sides[] = {0xea, 0x60, 0xea, 0x60};
    memcpy(jpeg.data + frame + 5, sides, sizeof sides);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    refuse_bytes(png.data, png.size, "PNG of 60000x60000 pixels: expected at most 67108864 in all");
    refuse_bytes(jpeg.data, jpeg.size, "JPEG of 60000x60000 pixels: expected at most 67108864 in all");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
    drop(&png);
    drop(&jpeg);
    refuse_bytes("P5\n1 60000000\n255\n", 18,
                 "of 60000000x1 pixels: expected at most 67108864 in all and 65535 a side");
    static const char tall[] = "P5\n1 65535\n255\n";
    lk_image image;
    bytes pgm = {0};
    append(&pgm, tall, sizeof tall - 1);
    uint8_t *nothing = calloc(1, 65535);
    append(&pgm, nothing, 65535);
    expect_failure(lk_image_decode(pgm.data, pgm.size, "it", &(lk_image_opts){.height = 8, .width = 8192}, &image),
                   LK_ERR_FORMAT, "of 65535x1 pixels is too high to become 8192 wide");
    free(nothing);
    drop(&pgm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pgm_and_ppm),
        cmocka_unit_test(reads_png),
        FOLDER_TEST(reads_headers_alone),
        cmocka_unit_test(reads_png_of_sixteen_bits),
        cmocka_unit_test(reads_jpeg),
        cmocka_unit_test(changes_channels),
        cmocka_unit_test(resizes_as_pillow_does),
        FOLDER_TEST(refuses_what_is_no_picture),
        cmocka_unit_test(refuses_damaged_pnm),
        cmocka_unit_test(survives_damaged_png),
        cmocka_unit_test(survives_damaged_jpeg),
        cmocka_unit_test(refuses_jpeg_of_two_components),
        cmocka_unit_test(does_not_decode_texts_in_png),
        cmocka_unit_test(refuses_bombs),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
