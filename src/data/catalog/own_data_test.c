/* The user's data in files: CIFAR's binary versions, IDX of any shape, CSV; and the options for all of them. */
#include "data/data_testing.h"

enum { RECORD = 3 * 32 * 32 };

static lk_dataset *open_path(const char *name, lk_split split, const lk_dataset_opts *opts)
{
    lk_dataset *dataset;
    assert_ok(lk_dataset_open(in_dir(name), split, opts, &dataset));
    return dataset;
}

static void refuse(const char *name, lk_split split, const lk_dataset_opts *opts, lk_status expected, const char *text,
                   const char *second)
{
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(in_dir(name), split, opts, &dataset);
    assert_null(dataset);
    expect_failure(status, expected, text, second);
}

static void write_text(const char *name, const char *text)
{
    bytes file = {0};
    append(&file, text, strlen(text));
    write_file(in_dir(name), &file);
    drop(&file);
}

/* --- CIFAR -------------------------------------------------------------------------------------------------------- */

/* `count` records, from number `first` of the data set on. */
static bytes cifar(int first, int count, bool fine)
{
    bytes file = {0};
    for (int i = first; i < first + count; i++) {
        if (fine)
            append(&file, &(uint8_t){(uint8_t)(200 + i)}, 1); /* the coarse label, which is ignored */
        append(&file, &(uint8_t){(uint8_t)(i * 7 % (fine ? 100 : 10))}, 1);
        for (int j = 0; j < RECORD; j++)
            append(&file, &(uint8_t){pixel_of(i, j)}, 1);
    }
    return file;
}

static void write_cifar(const char *name, int first, int count, bool fine)
{
    bytes file = cifar(first, count, fine);
    write_file(in_dir(name), &file);
    drop(&file);
}

static void expect_cifar(const lk_dataset *dataset, int first, int count, int classes)
{
    assert_int_equal(lk_dataset_count(dataset), count);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    assert_int_equal(lk_dataset_height(dataset), 32);
    assert_int_equal(lk_dataset_width(dataset), 32);
    assert_int_equal(lk_dataset_classes(dataset), classes);
    for (int i = 0; i < count; i++) {
        assert_int_equal(lk_dataset_labels(dataset)[i], (first + i) * 7 % classes);
        for (int j = 0; j < RECORD; j++)
            assert_int_equal(lk_dataset_images(dataset)[i * RECORD + j], pixel_of(first + i, j));
    }
}

static void reads_cifar_10(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        write_cifar(name, 3 * i, 3, false);
    }
    write_cifar("test_batch.bin", 50, 2, false);
    write_text("batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
    lk_dataset *dataset = open_path("", LK_SPLIT_TRAIN, NULL);
    expect_cifar(dataset, 0, 15, 10);
    assert_string_equal(lk_dataset_class_name(dataset, 9), "truck");
    assert_string_equal(lk_dataset_source(dataset), in_dir("data_batch_1.bin"));
    lk_dataset_release(dataset);
    dataset = open_path("", LK_SPLIT_TEST, NULL);
    expect_cifar(dataset, 50, 2, 10);
    lk_dataset_release(dataset);
    assert_int_equal(shell("gzip batches.meta.txt"), 0);
    dataset = open_path("", LK_SPLIT_TEST, NULL);
    assert_string_equal(lk_dataset_class_name(dataset, 9), "truck");
    lk_dataset_release(dataset);
    assert_int_equal(shell("truncate -s -9 batches.meta.txt.gz"), 0);
    refuse("", LK_SPLIT_TEST, NULL, LK_ERR_FORMAT, "batches.meta.txt.gz: ", "");
    assert_int_equal(unlink(in_dir("data_batch_4.bin")), 0);
    refuse("", LK_SPLIT_TRAIN, NULL, LK_ERR_FORMAT, "there is no data_batch_4.bin, which belongs to CIFAR-10", "");
}

static void reads_cifar_100(void **state)
{
    (void)state;
    write_cifar("train.bin", 0, 2000, true); /* more than the initial capacity */
    write_cifar("test.bin", 9, 4, true);
    lk_dataset *dataset = open_path("", LK_SPLIT_TRAIN, NULL);
    expect_cifar(dataset, 0, 2000, 100);
    assert_null(lk_dataset_class_name(dataset, 0));
    lk_dataset_release(dataset);
    dataset = open_path("", LK_SPLIT_TEST, NULL);
    expect_cifar(dataset, 9, 4, 100);
    lk_dataset_release(dataset);
}

static void cifar_may_lack_a_test_set(void **state)
{
    (void)state;
    write_cifar("train.bin", 0, 200, true);
    refuse("", LK_SPLIT_TEST, NULL, LK_ERR_ARGUMENT, "has no validation set: expected test.bin; use",
           "--val-split 0.1");
    lk_dataset *dataset = open_path("", LK_SPLIT_TEST, &(lk_dataset_opts){.val_split = 0.5});
    assert_int_equal(lk_dataset_classes(dataset), 100);
    lk_dataset_release(dataset);
}

static void refuses_damaged_cifar(void **state)
{
    (void)state;
    bytes file = cifar(0, 3, true);
    file.size -= 5;
    write_file(in_dir("train.bin"), &file);
    refuse("", LK_SPLIT_TRAIN, NULL, LK_ERR_FORMAT, "train.bin: truncated: record at offset 6148 has 3069 bytes",
           "expected 3074");
    file.size -= 3069;
    file.data[3075] = 100;
    write_file(in_dir("train.bin"), &file);
    refuse("", LK_SPLIT_TRAIN, NULL, LK_ERR_FORMAT, "record at offset 3074 has label 100, expected 0 to 99", "");
    write_text("train.bin", "");
    refuse("", LK_SPLIT_TRAIN, NULL, LK_ERR_FORMAT, "train.bin: is empty, expected records of 3074 bytes", "");
    drop(&file);
}

/* --- IDX ---------------------------------------------------------------------------------------------------------- */

static void reads_idx_of_any_shape(void **state)
{
    (void)state;
    const uint32_t header[] = {0x00000804, 12, 3, 5, 7};
    bytes images = {0}, labels = idx_labels(12);
    for (size_t i = 0; i < sizeof header / sizeof header[0]; i++)
        append_u32(&images, header[i]);
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < 105; j++)
            append(&images, &(uint8_t){pixel_of(i, j)}, 1);
    write_gzip(in_dir("train-images-idx4-ubyte.gz"), &images);
    write_file(in_dir("train-labels-idx1-ubyte"), &labels);
    lk_dataset *dataset = open_path("", LK_SPLIT_TRAIN, NULL);
    assert_int_equal(lk_dataset_count(dataset), 12);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    assert_int_equal(lk_dataset_height(dataset), 5);
    assert_int_equal(lk_dataset_width(dataset), 7);
    assert_int_equal(lk_dataset_classes(dataset), 10);
    assert_memory_equal(lk_dataset_images(dataset), images.data + 20, 12 * 105);
    lk_dataset_release(dataset);
    refuse("", LK_SPLIT_TEST, NULL, LK_ERR_ARGUMENT, "has no validation set", "--val-split 0.1");
    /* A folder whose name would be a pattern for glob. */
    char odd[256];
    snprintf(odd, sizeof odd, "%s", in_dir("s[ae]t *?\\"));
    assert_int_equal(mkdir(odd, 0700), 0);
    write_file(in_dir("s[ae]t *?\\/train-images"), &images);
    write_file(in_dir("s[ae]t *?\\/train-labels"), &labels);
    dataset = open_path("s[ae]t *?\\", LK_SPLIT_TRAIN, NULL);
    assert_int_equal(lk_dataset_count(dataset), 12);
    lk_dataset_release(dataset);
    write_file(in_dir("test-images.idx"), &images);
    write_file(in_dir("test-labels.idx"), &labels);
    dataset = open_path("", LK_SPLIT_TEST, NULL);
    assert_string_equal(lk_dataset_source(dataset), in_dir("test-images.idx"));
    lk_dataset_release(dataset);
    drop(&images);
    drop(&labels);
}

static void idx_with_channels_last_is_warned_of(void **state)
{
    (void)state;
    bytes images = {0}, labels = idx_labels(2);
    for (int last = 2; last <= 3; last++) {
        const uint32_t header[] = {0x00000804, 2, 6, 5, (uint32_t)last};
        for (size_t i = 0; i < sizeof header / sizeof header[0]; i++)
            append_u32(&images, header[i]);
        for (int i = 0; i < 2 * 6 * 5 * last; i++)
            append(&images, "", 1);
        write_file(in_dir("train-images"), &images);
        write_file(in_dir("train-labels"), &labels);
        hear_nothing();
        lk_dataset *dataset = open_path("", LK_SPLIT_TRAIN, NULL);
        assert_int_equal(lk_dataset_channels(dataset), 6);
        lk_dataset_release(dataset);
        assert_int_equal(strstr(heard, "train-images: images of 6 channels, 5x3, by [N,C,H,W]; if") != NULL, last == 3);
        drop(&images);
    }
    drop(&labels);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static void expect_rows(const lk_dataset *dataset, int count, const int32_t *labels, const uint8_t *images)
{
    size_t values = (size_t)(lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset));
    assert_int_equal(lk_dataset_count(dataset), count);
    assert_memory_equal(lk_dataset_labels(dataset), labels, (size_t)count * sizeof *labels);
    assert_memory_equal(lk_dataset_images(dataset), images, (size_t)count * values);
}

static const uint8_t two_rows[] = {1, 2, 3, 4, 5, 6, 250, 251, 252, 253, 254, 255};

static void reads_csv_with_a_flag(void **state)
{
    (void)state;
    write_text("a.csv", "3,1,2,3,4,5,6\r\n 0 , 250,251,252, 253,254,255");
    lk_dataset_opts opts = {.shape = "3x1x2"};
    lk_dataset *dataset = open_path("a.csv", LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    assert_int_equal(lk_dataset_height(dataset), 1);
    assert_int_equal(lk_dataset_classes(dataset), 4);
    assert_string_equal(lk_dataset_name(dataset), "a.csv");
    expect_rows(dataset, 2, (int32_t[]){3, 0}, two_rows);
    lk_dataset_release(dataset);
    opts.shape = "2x3";
    dataset = open_path("a.csv", LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), 2);
    lk_dataset_release(dataset);
    refuse("a.csv", LK_SPLIT_TRAIN, NULL, LK_ERR_ARGUMENT, "6 pixels a row, and no header that says in which shape",
           "");
    refuse("a.csv", LK_SPLIT_TEST, &opts, LK_ERR_ARGUMENT,
           "has no validation set: expected a folder with train.csv and val.csv; use", "");
    opts.shape = "2x2";
    refuse("a.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "--image-shape 2x2: is 4 pixels, but the rows of",
           "have 6 beside the label");
    opts.shape = "2xx2";
    refuse("a.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "--image-shape 2xx2: must be CHANNELSxHEIGHTxWIDTH", "");
    opts = (lk_dataset_opts){.shape = "2x3"};
    lk_status status = lk_dataset_open("synthetic", LK_SPLIT_TRAIN, &opts, &dataset);
    expect_failure(status, LK_ERR_ARGUMENT, "--image-shape 2x3: must be with CSV data, and synthetic is none");
    assert_int_equal(mkdir(in_dir("cifar"), 0700), 0);
    write_cifar("cifar/train.bin", 0, 2, true);
    opts = (lk_dataset_opts){.label_column = "kind"};
    refuse("cifar", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "--label-column kind: must be with CSV data, and cifar",
           "");
    assert_false(lk_dataset_is_csv(in_dir("cifar")) || lk_dataset_is_csv("synthetic") || lk_dataset_is_csv("nowhere"));
    assert_true(lk_dataset_is_csv(in_dir("a.csv")));
    opts.shape = "2x3";
    refuse("a.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "--label-column kind: ", "a.csv has no header");
    opts = (lk_dataset_opts){.label_column = "", .shape = ""};
    refuse("a.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "6 pixels a row, and no header", "");
}

static void reads_csv_with_a_header(void **state)
{
    (void)state;
    bytes text = {0};
    static const char rows[] = "\"1x1\",1x2,1x3,2x1,2x2,2x3,Label\n1,2,3,4,5,6,3\n\n250,251,252,253,254,255,0\n";
    append(&text, rows, sizeof rows - 1);
    write_gzip(in_dir("train.csv.gz"), &text);
    drop(&text);
    write_text("test.csv", "1x1,1x2,1x3,2x1,2x2,2x3,label\n1,2,3,4,5,6,3\n");
    lk_dataset *dataset = open_path("", LK_SPLIT_TRAIN, NULL);
    assert_int_equal(lk_dataset_height(dataset), 2);
    assert_int_equal(lk_dataset_width(dataset), 3);
    expect_rows(dataset, 2, (int32_t[]){3, 0}, two_rows);
    lk_dataset_release(dataset);
    dataset = open_path("", LK_SPLIT_TEST, NULL);
    assert_int_equal(lk_dataset_classes(dataset), 4);
    expect_rows(dataset, 1, (int32_t[]){3}, two_rows);
    lk_dataset_release(dataset);
    write_text("val.csv", "label,1x1,1x2,1x3,2x1,2x2,2x3\n4,1,2,3,4,5,6\n");
    refuse("", LK_SPLIT_TEST, NULL, LK_ERR_FORMAT, "val.csv: sample 0 has label 4, expected 0 to 3", "");

    lk_dataset_opts opts = {.label_column = "kind", .shape = "1x2"};
    write_text("b.csv", "x,kind,label\n1,2,3\n");
    dataset = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
    expect_rows(dataset, 1, (int32_t[]){2}, (uint8_t[]){1, 3});
    lk_dataset_release(dataset);
    opts.label_column = "the \"kind\", whose name has more than sixty-four bytes in all, as it is long";
    write_text("b.csv",
               "x,\"the \"\"kind\"\", whose name has more than sixty-four bytes in all, as it is long\",y\n1,2,3\n");
    dataset = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
    expect_rows(dataset, 1, (int32_t[]){2}, (uint8_t[]){1, 3});
    lk_dataset_release(dataset);
    opts.label_column = "sort";
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "--label-column sort: no column of that name", "b.csv");
    opts = (lk_dataset_opts){0};
    write_text("b.csv", "label,pixel0,pixel1,pixel2,pixel3\n1,2,3,4,5\n");
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "4 pixels a row", "(1x2x2 would fit)");
}

/* A file without a header would be read with its first pixel for the label. */
static void only_one_of_two_csv_with_a_header_is_refused(void **state)
{
    (void)state;
    lk_dataset_opts opts = {.shape = "2x2"};
    write_text("train.csv", "a,b,c,d,label\n0,9,9,9,1\n0,1,1,1,0\n");
    write_text("val.csv", "0,9,9,9,1\n");
    refuse("", LK_SPLIT_TEST, &opts, LK_ERR_FORMAT, "val.csv: has no header, but that of",
           "train.csv says that column 5 is the label");
    write_text("val.csv", "label,a,b,c,d\n1,0,9,9,9\n");
    lk_dataset *dataset = open_path("", LK_SPLIT_TEST, &opts);
    expect_rows(dataset, 1, (int32_t[]){1}, (uint8_t[]){0, 9, 9, 9});
    lk_dataset_release(dataset);
    write_text("train.csv", "1,0,9,9,9\n0,0,1,1,1\n");
    dataset = open_path("", LK_SPLIT_TEST, &opts);
    expect_rows(dataset, 1, (int32_t[]){1}, (uint8_t[]){0, 9, 9, 9});
    lk_dataset_release(dataset);
    write_text("val.csv", "a,b,c,d,label\n0,9,9,9,1\n");
    refuse("", LK_SPLIT_TEST, &opts, LK_ERR_FORMAT, "train.csv: has no header, but that of",
           "val.csv says that column 5 is the label");
}

static void a_label_that_no_column_is_called_is_guessed_aloud(void **state)
{
    (void)state;
    static const char warning[] = "b.csv: no column is called label or class: the first, 'a', is taken for it";
    lk_dataset_opts opts = {.shape = "1x2"};
    for (int named = 0; named < 2; named++) {
        write_text("b.csv", named ? "a,class,b\n1,2,3\n" : "a,kind,b\n1,2,3\n");
        hear_nothing();
        lk_dataset *dataset = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
        expect_rows(dataset, 1, (int32_t[]){named ? 2 : 1}, named ? (uint8_t[]){1, 3} : (uint8_t[]){2, 3});
        assert_int_equal(strstr(heard, warning) == NULL, named);
        lk_dataset_release(dataset);
    }
}

/* A header of column numbers is not a sample, but a sample that resembles one is. */
static void numbers_of_columns_are_no_row(void **state)
{
    (void)state;
    static const char pixels[] = ",1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,";
    char text[256];
    for (int last = 16; last <= 17; last++) {
        snprintf(text, sizeof text, "0%s%d\n1%s16\n", pixels, last, pixels);
        write_text("b.csv", text);
        lk_dataset *dataset = open_path("b.csv", LK_SPLIT_TRAIN, &(lk_dataset_opts){.shape = "4x4"});
        assert_int_equal(lk_dataset_count(dataset), last == 16 ? 1 : 2);
        assert_int_equal(lk_dataset_labels(dataset)[0], last == 16);
        lk_dataset_release(dataset);
    }
    write_text("b.csv", "0,1,label\n2,3,1\n");
    lk_dataset *dataset = open_path("b.csv", LK_SPLIT_TRAIN, &(lk_dataset_opts){.shape = "1x2"});
    expect_rows(dataset, 1, (int32_t[]){1}, (uint8_t[]){2, 3});
    lk_dataset_release(dataset);
}

/* Reads the CSV of spreadsheets and other programs. */
static void reads_csv_as_others_write_it(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\xef\xbb\xbflabel,1x1,1x2\r\n1,2,3\r\n300,5,6\r\n\r\n",
        "\"1x1\",\"1x2\",\"label\"\n\"2\",\"3\",\"1\"\n \"5\" , 6,\t300",
        "Label , 1x1, 1x2\n1, 2, 3\n\n300 ,5,006\n",
        "\xef\xbb\xbf\061,2,3\n300,5,6\n",
        "\xef\xbb\xbf\r\n \t\nlabel,1x1,1x2\n1,2,3\n \t \n300,5,6\n",
        "\"the \"\"kind\"\", a number\",1x1,1x2\n1,2,3\n300,5,6\n",
        ",1x1,1x2\n1,2,3\n300,5,6\n",
        "e,1x1,1x2\n1,2,3\n300,5,6\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text("b.csv", texts[i]);
        lk_dataset *dataset = open_path("b.csv", LK_SPLIT_TRAIN, &(lk_dataset_opts){.shape = i == 3 ? "1x2" : NULL});
        expect_rows(dataset, 2, (int32_t[]){1, 300}, (uint8_t[]){2, 3, 5, 6});
        assert_int_equal(lk_dataset_classes(dataset), 301);
        lk_dataset_release(dataset);
    }
}

static void bad_rows_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *row, *problem;
    } bad[] = {
        {"1,2,3", "b.csv:3: 3 columns, expected 5"},
        {"1,2,3,4,5,6", "b.csv:3: 6 columns, expected 5"},
        {"1,2,256,4,5", "b.csv:3: column 3 is '256', expected an integer from 0 to 255"},
        {"65536,2,2,4,5", "b.csv:3: column 1 is '65536', expected a label, an integer from 0 to 65535"},
        {"1,\"2,3,4,5", "b.csv:3: column 2 is '\"2'"},
        {"1,2,-3,4,5", "b.csv:3: column 3 is '-3'"},
        {"1,2,0.5,4,5", "b.csv:3: column 3 is '0.5'"},
        {"1,2,,4,5", "b.csv:3: column 3 is ''"},
        {"1,2,99999999999999999999,4,5", "b.csv:3: column 3 is '99999999999999999999'"},
        {"cat,2,3,4,5", "b.csv:3: column 1 is 'cat'"},
    };
    lk_dataset_opts opts = {.shape = "2x2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "0,1,2,3,4\n1,1,2,3,4\n%s\n1,9,8,7,6\n", bad[i].row);
        write_text("b.csv", text);
        opts.skip_bad = false;
        refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, bad[i].problem, "--skip-bad leaves such rows out");
        opts.skip_bad = true;
        hear_nothing();
        lk_dataset *dataset = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
        expect_rows(dataset, 3, (int32_t[]){0, 1, 1}, (uint8_t[]){1, 2, 3, 4, 1, 2, 3, 4, 9, 8, 7, 6});
        expect_heard(bad[i].problem);
        expect_heard("1 rows of ");
        lk_dataset_release(dataset);
    }
    write_text("b.csv", "");
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "is empty, expected rows", "");
    write_text("b.csv", "\n \n");
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "is empty, expected rows", "");
    write_text("b.csv", "label,1x1\n");
    opts.shape = NULL;
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "has no row that can be used", "");
    write_text("b.csv", "7\n");
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "b.csv:1: one column, expected a label and pixels", "");
    opts.shape = "1x2";
    write_text("b.csv", "7;1;2\n");
    refuse("b.csv", LK_SPLIT_TRAIN, &opts, LK_ERR_FORMAT, "b.csv:1: one column", "with commas between them");
    static const char *const zeros[] = {"label,1x2\0,1x1\n7,1,2\n", "label,1x1,1x2\n7,1,2\0\n"};
    for (int i = 0; i < 2; i++) {
        bytes file = {0};
        append(&file, zeros[i], i == 0 ? 22 : 21);
        write_file(in_dir("b.csv"), &file);
        drop(&file);
        refuse("b.csv", LK_SPLIT_TRAIN, NULL, LK_ERR_FORMAT, i == 0 ? "b.csv:1: a byte of 0" : "b.csv:2: a byte of 0",
               "expected text in UTF-8");
    }
    write_text("b.txt", "7\n");
    refuse("b.txt", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "a file of samples is a .csv or .csv.gz file", "");
}

/* --- any of them -------------------------------------------------------------------------------------------------- */

/* Also for known data sets: the samples held out of the training set are then their validation set. */
static void a_share_is_held_out(void **state)
{
    (void)state;
    lk_dataset_opts opts = {.val_split = 0.1};
    lk_dataset *whole, *train, *test;
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TRAIN, NULL, &whole));
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TRAIN, &opts, &train));
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &opts, &test));
    assert_int_equal(lk_dataset_count(train), 54000);
    assert_int_equal(lk_dataset_count(test), 6000);
    int64_t of_train = 0, of_test = 0;
    for (int64_t i = 0; i < 60000; i++) {
        const uint8_t *image = lk_dataset_images(whole) + i * 784;
        if (of_test < 6000 && memcmp(image, lk_dataset_images(test) + of_test * 784, 784) == 0)
            of_test++;
        else if (of_train < 54000 && memcmp(image, lk_dataset_images(train) + of_train * 784, 784) == 0)
            of_train++;
    }
    assert_int_equal(of_train, 54000);
    assert_int_equal(of_test, 6000);
    lk_dataset_release(whole);
    lk_dataset_release(train);
    lk_dataset_release(test);
    opts.val_split = 1;
    lk_status status = lk_dataset_open("synthetic", LK_SPLIT_TEST, &opts, &test);
    expect_failure(status, LK_ERR_ARGUMENT, "--val-split 1: must be at least 0 and below 1");
}

static void sizes_and_channels_are_changed(void **state)
{
    (void)state;
    lk_dataset_opts opts = {.resize = "14x56", .channels = 3, .limit = 3};
    lk_dataset *dataset;
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &opts, &dataset));
    assert_int_equal(lk_dataset_count(dataset), 3);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    assert_int_equal(lk_dataset_height(dataset), 14);
    assert_int_equal(lk_dataset_width(dataset), 56);
    const uint8_t *images = lk_dataset_images(dataset);
    assert_memory_equal(images, images + 14 * 56, 14 * 56);
    assert_memory_equal(images, images + 2 * 14 * 56, 14 * 56);
    lk_dataset_release(dataset);
    write_cifar("train.bin", 0, 2, true);
    opts = (lk_dataset_opts){.channels = 1};
    dataset = open_path("", LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    for (int j = 0; j < 1024; j++) {
        int gray =
            (19595 * pixel_of(1, j) + 38470 * pixel_of(1, 1024 + j) + 7471 * pixel_of(1, 2048 + j) + 32768) >> 16;
        assert_int_equal(lk_dataset_images(dataset)[1024 + j], gray);
    }
    lk_dataset_release(dataset);
    opts.channels = 2;
    refuse("", LK_SPLIT_TRAIN, &opts, LK_ERR_ARGUMENT, "--channels 2: must be 1 (gray) or 3 (color)", "");
}

/* Samples 1 and 3 of five are the same image, and the other set has a copy of it at 2. */
static void equal_images_are_found(void **state)
{
    (void)state;
    lk_dataset_opts opts = {.shape = "1x2"};
    int64_t equals[5], counts[3];
    write_text("a.csv", "0,1,2\n1,3,4\n2,5,6\n2,3,4\n0,1,3\n");
    write_text("b.csv", "0,9,9\n1,9,8\n1,3,4\n2,3,4\n");
    lk_dataset *a = open_path("a.csv", LK_SPLIT_TRAIN, &opts), *b = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
    assert_ok(lk_dataset_find_equal(a, a, equals));
    assert_memory_equal(equals, ((int64_t[]){0, 1, 2, 1, 4}), sizeof equals);
    assert_ok(lk_dataset_find_equal(a, b, equals));
    assert_memory_equal(equals, ((int64_t[]){-1, 2, -1, 2, -1}), sizeof equals);
    lk_dataset_class_counts(a, counts);
    assert_memory_equal(counts, ((int64_t[]){2, 1, 2}), sizeof counts);
    lk_dataset_release(b);
    opts.shape = "2x1";
    b = open_path("b.csv", LK_SPLIT_TRAIN, &opts);
    assert_ok(lk_dataset_find_equal(a, b, equals));
    assert_memory_equal(equals, ((int64_t[]){-1, -1, -1, -1, -1}), sizeof equals);
    lk_dataset_release(a);
    lk_dataset_release(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(reads_cifar_10),
        FOLDER_TEST(reads_cifar_100),
        FOLDER_TEST(refuses_damaged_cifar),
        FOLDER_TEST(cifar_may_lack_a_test_set),
        FOLDER_TEST(reads_idx_of_any_shape),
        FOLDER_TEST(idx_with_channels_last_is_warned_of),
        FOLDER_TEST(reads_csv_with_a_flag),
        FOLDER_TEST(reads_csv_with_a_header),
        FOLDER_TEST(only_one_of_two_csv_with_a_header_is_refused),
        FOLDER_TEST(a_label_that_no_column_is_called_is_guessed_aloud),
        FOLDER_TEST(numbers_of_columns_are_no_row),
        FOLDER_TEST(reads_csv_as_others_write_it),
        FOLDER_TEST(bad_rows_are_named),
        FOLDER_TEST(a_share_is_held_out),
        FOLDER_TEST(sizes_and_channels_are_changed),
        FOLDER_TEST(equal_images_are_found),
    };
    return cmocka_run_group_tests_name("own_data", tests, NULL, NULL);
}
