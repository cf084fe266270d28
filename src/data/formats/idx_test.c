/* IDX files, plain and compressed, whole and damaged in every way. */
#include "data/data_testing.h"

enum { COUNT = 12, HEIGHT = 4, WIDTH = 5, PIXELS = HEIGHT * WIDTH };

static lk_status open_files(const char *images, const char *labels)
{
    lk_dataset *dataset = (lk_dataset *)(intptr_t)-1;
    lk_status status = lk_dataset_open_idx(in_dir(images), in_dir(labels), 10, 0, &dataset);
    if (status == LK_OK)
        lk_dataset_release(dataset);
    else
        assert_null(dataset);
    return status;
}

static void check_content(const lk_dataset *dataset, int64_t count)
{
    assert_int_equal(lk_dataset_count(dataset), count);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), HEIGHT);
    assert_int_equal(lk_dataset_width(dataset), WIDTH);
    assert_int_equal(lk_dataset_classes(dataset), 10);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(lk_dataset_labels(dataset)[i], label_of(i));
        for (int64_t j = 0; j < PIXELS; j++)
            assert_int_equal(lk_dataset_images(dataset)[i * PIXELS + j], pixel_of(i, j));
    }
}

static void test_reads_plain_and_gzip(void **state)
{
    (void)state;
    static const char *const names[2][2] = {{"images", "labels"}, {"images.gz", "labels.gz"}};
    for (int i = 0; i < 2; i++) {
        write_pair(in_dir(names[i][0]), in_dir(names[i][1]), COUNT, HEIGHT, WIDTH);
        for (int64_t limit = -1; limit <= COUNT + 1; limit++) {
            lk_dataset *dataset;
            assert_ok(lk_dataset_open_idx(in_dir(names[i][0]), in_dir(names[i][1]), 10, limit, &dataset));
            check_content(dataset, limit <= 0 || limit > COUNT ? COUNT : limit);
            assert_string_equal(lk_dataset_name(dataset), "idx");
            assert_string_equal(lk_dataset_source(dataset), in_dir(names[i][0]));
            assert_null(lk_dataset_class_name(dataset, 0));
            lk_dataset *same = lk_dataset_retain(dataset);
            lk_dataset_release(dataset);
            check_content(same, lk_dataset_count(same));
            lk_dataset_release(same);
        }
    }
    lk_dataset_release(NULL);
}

static void test_reads_channels(void **state)
{
    (void)state;
    bytes images = {0}, labels = idx_labels(2);
    append_u32(&images, 0x00000804);
    append_u32(&images, 2);
    append_u32(&images, 3);
    append_u32(&images, 4);
    append_u32(&images, 5);
    for (int i = 0; i < 2 * 3 * 4 * 5; i++)
        append(&images, &(uint8_t){(uint8_t)i}, 1);
    write_file(in_dir("images"), &images);
    write_file(in_dir("labels"), &labels);
    lk_dataset *dataset;
    assert_ok(lk_dataset_open_idx(in_dir("images"), in_dir("labels"), 10, 0, &dataset));
    assert_int_equal(lk_dataset_count(dataset), 2);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    assert_int_equal(lk_dataset_height(dataset), 4);
    assert_int_equal(lk_dataset_width(dataset), 5);
    assert_int_equal(lk_dataset_images(dataset)[119], 119);
    lk_dataset_release(dataset);
    drop(&images);
    drop(&labels);
}

/* A content so large, and compressed so much better than the reader expects, that its buffer grows several times. */
static void test_reads_highly_compressed(void **state)
{
    (void)state;
    bytes images = {0}, labels = {0};
    append_u32(&images, 0x00000803);
    append_u32(&images, 1000);
    append_u32(&images, 40);
    append_u32(&images, 50);
    append_u32(&labels, 0x00000801);
    append_u32(&labels, 1000);
    uint8_t *zeros = calloc(1000, 2000);
    assert_non_null(zeros);
    zeros[1999999] = 77;
    append(&images, zeros, 2000000);
    append(&labels, zeros, 1000);
    free(zeros);
    write_gzip(in_dir("images.gz"), &images);
    write_gzip(in_dir("labels.gz"), &labels);
    lk_dataset *dataset;
    assert_ok(lk_dataset_open_idx(in_dir("images.gz"), in_dir("labels.gz"), 10, 0, &dataset));
    assert_int_equal(lk_dataset_images(dataset)[1999998], 0);
    assert_int_equal(lk_dataset_images(dataset)[1999999], 77);
    lk_dataset_release(dataset);
    drop(&images);
    drop(&labels);
}

/* RFC 1952 allows a gzip file to have several members. */
static void test_reads_several_members(void **state)
{
    (void)state;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, HEIGHT, WIDTH);
    bytes images = idx_images(COUNT, HEIGHT, WIDTH), joined = {0};
    for (size_t at = 0; at < images.size; at += 100) {
        bytes piece = {.data = images.data + at, .size = images.size - at < 100 ? images.size - at : 100};
        bytes member = compressed(&piece);
        append(&joined, member.data, member.size);
        drop(&member);
    }
    write_file(in_dir("images.gz"), &joined);
    lk_dataset *dataset;
    assert_ok(lk_dataset_open_idx(in_dir("images.gz"), in_dir("labels"), 10, 0, &dataset));
    check_content(dataset, COUNT);
    lk_dataset_release(dataset);
    drop(&images);
    drop(&joined);
}

/* Every proper prefix of a file is refused. */
static void check_every_prefix(const char *name, const bytes *whole, bool gzip)
{
    for (size_t size = 0; size < whole->size; size++) {
        write_file(in_dir(name), &(bytes){.data = whole->data, .size = size});
        lk_status status = open_files(gzip ? "images.gz" : "images", gzip ? "labels.gz" : "labels");
        expect_failure(status, LK_ERR_FORMAT, name, "truncated");
    }
    write_file(in_dir(name), whole);
}

static void test_refuses_truncated(void **state)
{
    (void)state;
    bytes images = idx_images(3, 2, 2), labels = idx_labels(3);
    bytes images_gz = compressed(&images), labels_gz = compressed(&labels);
    write_file(in_dir("images"), &images);
    write_file(in_dir("images.gz"), &images_gz);
    write_file(in_dir("labels"), &labels);
    write_file(in_dir("labels.gz"), &labels_gz);
    check_every_prefix("images", &images, false);
    check_every_prefix("labels", &labels, false);
    check_every_prefix("images.gz", &images_gz, true);
    check_every_prefix("labels.gz", &labels_gz, true);
    assert_ok(open_files("images", "labels"));
    assert_ok(open_files("images.gz", "labels.gz"));

    /* A sound gzip file with a truncated content. */
    bytes cut = {.data = images.data, .size = images.size - 1};
    write_gzip(in_dir("images.gz"), &cut);
    expect_failure(open_files("images.gz", "labels"), LK_ERR_FORMAT, "images.gz: truncated", "promises 12 bytes",
                   "there are 11");
    cut.size = 9;
    write_gzip(in_dir("images.gz"), &cut);
    expect_failure(open_files("images.gz", "labels"), LK_ERR_FORMAT, "images.gz: truncated", "header");
    drop(&images);
    drop(&labels);
    drop(&images_gz);
    drop(&labels_gz);
}

static void test_refuses_overlong(void **state)
{
    (void)state;
    bytes images = idx_images(COUNT, HEIGHT, WIDTH), labels = idx_labels(COUNT);
    bytes sound = compressed(&images);
    append(&sound, "garbage", 7);
    write_file(in_dir("trailing.gz"), &sound);
    append(&images, "x", 1);
    write_file(in_dir("images"), &images);
    write_gzip(in_dir("images.gz"), &images);
    write_file(in_dir("labels"), &labels);
    expect_failure(open_files("images", "labels"), LK_ERR_FORMAT, "images: over-long: 241 bytes", "expected 240");
    expect_failure(open_files("images.gz", "labels"), LK_ERR_FORMAT, "images.gz: over-long", "240");
    expect_failure(open_files("trailing.gz", "labels"), LK_ERR_FORMAT, "trailing.gz: gzip data end at offset",
                   "7 more bytes follow");
    drop(&images);
    drop(&labels);
    drop(&sound);
}

/* Damages the checksum and the length at the end of a gzip file, and a byte of its data. */
static void test_refuses_damaged_gzip(void **state)
{
    (void)state;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, HEIGHT, WIDTH);
    bytes images = idx_images(COUNT, HEIGHT, WIDTH);
    bytes gzip = compressed(&images);
    const struct {
        size_t at;
        const char *text;
    } damage[] = {{gzip.size - 8, "incorrect data check"}, {gzip.size - 1, "incorrect length check"}, {2, "offset"}};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        gzip.data[damage[i].at] ^= 0x40;
        write_file(in_dir("images.gz"), &gzip);
        gzip.data[damage[i].at] ^= 0x40;
        expect_failure(open_files("images.gz", "labels"), LK_ERR_FORMAT, "images.gz: damaged gzip data at offset",
                       damage[i].text);
    }
    drop(&images);
    drop(&gzip);
}

static void write_header(const char *name, bool gzip, int words, const uint32_t *word)
{
    bytes header = {0};
    for (int i = 0; i < words; i++)
        append_u32(&header, word[i]);
    append(&header, "some pixels", 11);
    (gzip ? write_gzip : write_file)(in_dir(name), &header);
    drop(&header);
}

/* Headers that cannot be true, in plain and compressed files. */
static void test_refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        int words;
        uint32_t word[5];
        const char *text;
    } cases[] = {
        {1, {0x01000803}, "not an IDX file: begins with bytes 01 00, expected 00 00"},
        {1, {0x3c21646f}, "begins with bytes 3c 21"},
        {4, {0x00000d03, 1, 1, 11}, "type 0x0d at offset 2, expected 0x08"},
        {3, {0x00000802, 1, 11}, "2 dimensions at offset 3, expected 3 to 4"},
        {2, {0x00000801, 11}, "1 dimensions at offset 3, expected 3 to 4"},
        {5, {0x00000805, 1, 1, 1, 11}, "5 dimensions at offset 3"},
        {4, {0x00000803, 0, 1, 11}, "dimension 0 at offset 4 is zero"},
        {4, {0x00000803, 11, 1, 0}, "dimension 2 at offset 12 is zero"},
        {5, {0x00000804, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, "dimensions 0 to 1 exceeds"},
        {5, {0x00000804, 0x80000000, 0x80000000, 2, 1}, "dimensions 0 to 2 exceeds"},
        {4, {0x00000803, 1, 0x80000000, 0x200}, "truncated: the header promises 1099511627776 bytes"},
        {4, {0x00000803, 0x7fffffff, 0x7fffffff, 1}, "truncated"},
        {4, {0x00000803, 1, 1, 12}, "truncated"},
        {4, {0x00000803, 1, 1, 10}, "over-long"},
    };
    bytes labels = idx_labels(1);
    write_file(in_dir("labels"), &labels);
    drop(&labels);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_header("images", false, cases[i].words, cases[i].word);
        write_header("images.gz", true, cases[i].words, cases[i].word);
        expect_failure(open_files("images", "labels"), LK_ERR_FORMAT, "/images: ", cases[i].text);
        expect_failure(open_files("images.gz", "labels"), LK_ERR_FORMAT, "/images.gz: ", cases[i].text);
    }
    write_header("images", false, 4, (const uint32_t[]){0x00000803, 1, 1, 11});
    assert_ok(open_files("images", "labels"));
    write_header("labels", false, 4, (const uint32_t[]){0x00000803, 1, 1, 11});
    expect_failure(open_files("images", "labels"), LK_ERR_FORMAT, "labels: 3 dimensions at offset 3, expected 1");
}

static void test_refuses_mismatched_pair(void **state)
{
    (void)state;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, HEIGHT, WIDTH);
    bytes labels = idx_labels(COUNT - 1);
    write_file(in_dir("labels"), &labels);
    drop(&labels);
    expect_failure(open_files("images", "labels"), LK_ERR_FORMAT, "images holds 12 images", "labels holds 11 labels");
}

static void test_refuses_label_out_of_range(void **state)
{
    (void)state;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, HEIGHT, WIDTH);
    bytes labels = idx_labels(COUNT);
    labels.data[8 + 7] = 10;
    write_file(in_dir("labels"), &labels);
    write_gzip(in_dir("labels.gz"), &labels);
    drop(&labels);
    expect_failure(open_files("images", "labels"), LK_ERR_FORMAT, "/labels: sample 7 has label 10, expected 0 to 9");
    expect_failure(open_files("images", "labels.gz"), LK_ERR_FORMAT, "/labels.gz: sample 7 has label 10");
    /* A damaged label beyond the limit is an error, too. */
    lk_dataset *dataset;
    expect_failure(lk_dataset_open_idx(in_dir("images"), in_dir("labels"), 10, 3, &dataset), LK_ERR_FORMAT, "sample 7");
    assert_ok(lk_dataset_open_idx(in_dir("images"), in_dir("labels"), 11, 3, &dataset));
    lk_dataset_release(dataset);
}

static void test_refuses_what_is_no_file(void **state)
{
    (void)state;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, HEIGHT, WIDTH);
    expect_failure(open_files("absent", "labels"), LK_ERR_IO, "absent: cannot be opened: No such file");
    assert_int_equal(mkdir(in_dir("folder"), 0777), 0);
    expect_failure(open_files("folder", "labels"), LK_ERR_IO, "folder: is not a regular file");
    assert_int_equal(mkfifo(in_dir("fifo"), 0666), 0);
    expect_failure(open_files("fifo", "labels"), LK_ERR_IO, "fifo: is not a regular file");
    bytes page = {0};
    append(&page, "<!DOCTYPE html>", 15);
    write_file(in_dir("page.gz"), &page);
    drop(&page);
    expect_failure(open_files("page.gz", "labels"), LK_ERR_FORMAT,
                   "page.gz: is not gzip data: begins with bytes 3c 21");
}

static void test_refuses_bad_arguments(void **state)
{
    (void)state;
    lk_dataset *dataset;
    expect_failure(lk_dataset_open_idx(NULL, "x", 10, 0, &dataset), LK_ERR_ARGUMENT, "paths");
    expect_failure(lk_dataset_open_idx("x", "x", 0, 0, &dataset), LK_ERR_ARGUMENT, "0 classes", "1 to 256");
    expect_failure(lk_dataset_open_idx("x", "x", 257, 0, &dataset), LK_ERR_ARGUMENT, "257 classes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_reads_plain_and_gzip),    FOLDER_TEST(test_reads_channels),
        FOLDER_TEST(test_reads_highly_compressed), FOLDER_TEST(test_reads_several_members),
        FOLDER_TEST(test_refuses_truncated),       FOLDER_TEST(test_refuses_overlong),
        FOLDER_TEST(test_refuses_damaged_gzip),    FOLDER_TEST(test_refuses_bad_headers),
        FOLDER_TEST(test_refuses_mismatched_pair), FOLDER_TEST(test_refuses_label_out_of_range),
        FOLDER_TEST(test_refuses_what_is_no_file), FOLDER_TEST(test_refuses_bad_arguments),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
