/* Called with a folder, writes event files that tests/command/tensorboard_test.sh reads with TensorBoard. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "io/records/crc32c.h"
#include "io/records/protobuf.h"
#include "lockstep/record.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

/* RFC 3720, appendix B.4, and the check value of the catalog of CRCs. */
static void crc32c_of_known_texts(void **state)
{
    (void)state;
    unsigned char bytes[32] = {0};
    assert_int_equal(lk__crc32c("", 0), 0);
    assert_int_equal(lk__crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(lk__crc32c(bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, 32);
    assert_int_equal(lk__crc32c(bytes, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(lk__crc32c(bytes, 32), 0x46DD794E);
}

/* The examples of "Encoding" on protobuf.dev. */
static void protobuf_as_its_documentation_shows(void **state)
{
    (void)state;
    lk_bytes out = {0};
    lk__pb_varint(&out, 1, 150);
    assert_int_equal(out.size, 3);
    assert_memory_equal(out.data, "\x08\x96\x01", 3);
    lk__bytes_clear(&out);
    lk__pb_string(&out, 2, "testing");
    assert_memory_equal(out.data, "\x12\x07testing", 9);
    lk__bytes_clear(&out);
    size_t inner = lk__pb_begin(&out, 3);
    lk__pb_varint(&out, 1, 150);
    lk__pb_end(&out, inner);
    assert_int_equal(out.size, 5);
    assert_memory_equal(out.data, "\x1a\x03\x08\x96\x01", 5);
    lk__bytes_clear(&out);
    lk__pb_varint(&out, 1, (uint64_t)-2);
    assert_memory_equal(out.data, "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    lk__bytes_clear(&out);
    inner = lk__pb_begin(&out, 1); /* a length of two bytes */
    for (int i = 0; i < 100; i++)
        lk__pb_varint(&out, 2, 1);
    lk__pb_end(&out, inner);
    assert_int_equal(out.size, 203);
    assert_memory_equal(out.data, "\x0a\xc8\x01\x10\x01", 5);
    lk__bytes_free(&out);
}

/* Bytes that TensorBoard 2.21's reader accepted, with CRCs: step 3, loss 0.25, at 1000.5 seconds. */
static const unsigned char stored_scalar[] = {
    0x1a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12, 0x9b, 0xd8, 0x2d, 0x09, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x44, 0x8f, 0x40, 0x10, 0x03, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a,
    0x04, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x80, 0x3e, 0x60, 0x3f, 0x05, 0xf2,
};

static lk_event_writer *open_events(const char *name)
{
    lk_event_writer *writer = lk_event_writer_new(in_dir(name));
    assert_non_null(writer);
    return writer;
}

static size_t size_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (size_t)status.st_size;
}

static void a_record_has_the_stored_bytes(void **state)
{
    (void)state;
    lk_event_writer *writer = open_events("stored");
    size_t head = size_of(lk_event_writer_path(writer)), size;
    assert_int_equal(lk_event_scalar(writer, "loss", 3, 0.25, 1000.5), LK_OK);
    char *file = contents_of(lk_event_writer_path(writer), &size); /* written without a flush */
    assert_int_equal(size - head, sizeof stored_scalar);
    assert_memory_equal(file + head, stored_scalar, sizeof stored_scalar);
    free(file);
    lk_event_writer_release(writer);
}

/* Walks over the records as a reader does. Returns their number. */
static int check_records(const char *path)
{
    size_t size, at = 0;
    int records = 0;
    unsigned char *file = (unsigned char *)contents_of(path, &size);
    for (; at < size; records++) {
        uint64_t length = 0;
        uint32_t crc = 0;
        assert_true(size - at >= 16);
        for (int i = 7; i >= 0; i--)
            length = length << 8 | file[at + (size_t)i];
        assert_true(length <= size - at - 16);
        for (int i = 3; i >= 0; i--)
            crc = crc << 8 | file[at + 12 + length + (size_t)i];
        uint32_t expected = lk__crc32c(file + at + 12, length);
        assert_int_equal(crc, (uint32_t)((expected >> 15 | expected << 17) + 0xA282EAD8u));
        at += 16 + length;
    }
    free(file);
    return records;
}

static void the_file_says_what_it_is(void **state)
{
    (void)state;
    lk_event_writer *first = open_events("a/b/named"), *second = open_events("a/b/named");
    assert_string_not_equal(lk_event_writer_path(first), lk_event_writer_path(second));
    assert_non_null(strstr(lk_event_writer_path(first), "a/b/named/events.out.tfevents."));
    assert_int_equal(check_records(lk_event_writer_path(first)), 1);
    char *file = contents_of(lk_event_writer_path(first), NULL);
    /* The time, then field 3 with 13 bytes. */
    assert_memory_equal(file + 12 + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    free(file);
    lk_event_writer_release(first);
    lk_event_writer_release(second);
}

static void write_all_kinds(lk_event_writer *writer)
{
    static const float values[] = {-1, -0.5f, 0, 0, 0.25f, 1, NAN, INFINITY, 2};
    static const float equal[] = {3, 3, 3};
    for (int step = 0; step < 3; step++) {
        assert_int_equal(lk_event_scalar(writer, "train/loss", step, 2.5 - step, 1000 + step), LK_OK);
        assert_int_equal(lk_event_scalar(writer, "train/accuracy", step, 0.25 * step, 1000 + step), LK_OK);
    }
    assert_int_equal(lk_event_scalar(writer, "train/loss", 3, NAN, 0), LK_OK);
    assert_int_equal(lk_event_histogram(writer, "weights/conv1", 1, values, 9, 1001), LK_OK);
    assert_int_equal(lk_event_histogram(writer, "weights/equal", 1, equal, 3, 1001), LK_OK);
    assert_int_equal(lk_event_histogram(writer, "weights/none", 1, NULL, 0, 1001), LK_OK);
    assert_int_equal(lk_event_text(writer, "settings", 0, "| a | b |\n|---|---|\n| 1 | ä |\n", 1000), LK_OK);
    assert_int_equal(lk_event_writer_flush(writer), LK_OK);
}

static void all_records_are_whole(void **state)
{
    (void)state;
    lk_event_writer *writer = open_events("all");
    write_all_kinds(writer);
    assert_int_equal(check_records(lk_event_writer_path(writer)), 12);
    assert_int_equal(lk_event_scalar(writer, NULL, 0, 1, 0), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_event_text(writer, "", 0, "x", 0), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_event_text(writer, "settings", 0, NULL, 0), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_event_writer_release(writer);
}

static double double_at(const unsigned char *bytes)
{
    uint64_t bits = 0;
    double value;
    for (int i = 7; i >= 0; i--)
        bits = bits << 8 | bytes[i];
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The record ends with the buckets: limits, then counts. */
static void a_histogram_counts_every_finite_value_once(void **state)
{
    (void)state;
    enum { COUNT = 1000, BUCKETS = 30 };
    static float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i / (COUNT - 1);
    values[500] = NAN;
    lk_event_writer *writer = open_events("histogram");
    assert_int_equal(lk_event_histogram(writer, "w", 0, values, COUNT, 1), LK_OK);
    size_t size;
    unsigned char *file = (unsigned char *)contents_of(lk_event_writer_path(writer), &size);
    const unsigned char *buckets = file + size - 4 - 8 * BUCKETS, *limits = buckets - 3 - 8 * BUCKETS;
    double total = 0;
    for (int b = 0; b < BUCKETS; b++) {
        double count = double_at(buckets + 8 * b);
        assert_true(count >= 32 && count <= 34);
        assert_true(fabs(double_at(limits + 8 * b) - (b + 1.0) / BUCKETS) < 1e-12);
        total += count;
    }
    assert_true(total == COUNT - 1);
    free(file);
    lk_event_writer_release(writer);
}

static void a_full_disk_leaves_whole_records(void **state)
{
    (void)state;
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    lk_event_writer *writer = open_events("full");
    assert_int_equal(lk_event_scalar(writer, "loss", 1, 1, 0), LK_OK);
    limit = (struct rlimit){.rlim_cur = size_of(lk_event_writer_path(writer)) + 20, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    lk_status status = lk_event_scalar(writer, "loss", 2, 1, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, LK_ERR_IO);
    assert_non_null(strstr(lk_error_message(), lk_event_writer_path(writer)));
    lk_error_clear();
    assert_int_equal(check_records(lk_event_writer_path(writer)), 2);
    assert_int_equal(lk_event_scalar(writer, "loss", 3, 1, 0), LK_OK);
    assert_int_equal(check_records(lk_event_writer_path(writer)), 3);
    lk_event_writer_release(writer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const float values[] = {1, 2, 3};
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_event_writer *writer = lk_event_writer_new(in_dir("memory"));
        lk_status status = writer ? lk_event_histogram(writer, "w", 0, values, 3, 1) : LK_ERR_MEMORY;
        stop_failing_with(&f, status);
        if (writer)
            check_records(lk_event_writer_path(writer));
        lk_event_writer_release(writer);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        lk_event_writer *writer = lk_event_writer_new(argv[1]);
        if (!writer)
            return 1;
        write_all_kinds(writer);
        lk_event_writer_release(writer);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_of_known_texts),
        cmocka_unit_test(protobuf_as_its_documentation_shows),
        cmocka_unit_test(a_record_has_the_stored_bytes),
        cmocka_unit_test(the_file_says_what_it_is),
        cmocka_unit_test(all_records_are_whole),
        cmocka_unit_test(a_histogram_counts_every_finite_value_once),
        cmocka_unit_test(a_full_disk_leaves_whole_records),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("events", tests, make_test_dir, remove_test_dir);
}
