/* Records that continue from a mark. */
#include "io/io_testing.h"

#include "lockstep/record.h"

#include <stdbool.h>

static void put_row(lk_row_writer *writer, int64_t epoch)
{
    const lk_field row[] = {LK_INT("epoch", epoch)};
    assert_int_equal(lk_row_write(writer, row, 1), LK_OK);
}

static void is_refused(bool is_made, lk_status status)
{
    assert_false(is_made);
    assert_int_equal(lk_error_status(), status);
    lk_error_clear();
}

static void rows_go_on(void **state)
{
    (void)state;
    const char *path = in_dir("rows.csv");
    char mark[LK_RECORD_MARK];
    lk_row_writer *writer = lk_row_writer_new(path, LK_ROWS_CSV, false);
    assert_non_null(writer);
    put_row(writer, 1);
    assert_int_equal(lk_row_writer_mark(writer, mark), LK_OK);
    put_row(writer, 2);
    lk_row_writer_release(writer);
    for (int64_t epoch = 3; epoch < 5; epoch++) {
        writer = lk_row_writer_reopen(path, LK_ROWS_CSV, mark);
        assert_non_null(writer);
        put_row(writer, epoch);
        lk_row_writer_release(writer);
    }
    assert_contents(path, "epoch\n1\n4\n");

    static const char *const others[] = {"", " ", "1", "8 0123", "-1 0123456789abcdef", "8 0123456789abcdefg", "x 1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is_refused(lk_row_writer_reopen(path, LK_ROWS_CSV, others[i]), LK_ERR_ARGUMENT);
    is_refused(lk_row_writer_reopen(path, LK_ROWS_CSV, NULL), LK_ERR_ARGUMENT);
    put_file(path, "epoch\n7\n4\n");
    is_refused(lk_row_writer_reopen(path, LK_ROWS_CSV, mark), LK_ERR_STATE);
    assert_contents(path, "epoch\n7\n4\n");
    is_refused(lk_row_writer_reopen(in_dir("nowhere.csv"), LK_ROWS_CSV, mark), LK_ERR_STATE);
    assert_int_equal(access(in_dir("nowhere.csv"), F_OK), -1);

    writer = lk_row_writer_new("/dev/full", LK_ROWS_CSV, true);
    assert_non_null(writer);
    is_refused(lk_row_writer_mark(writer, mark) == LK_OK, LK_ERR_IO);
    lk_row_writer_release(writer);
}

static void events_go_on(void **state)
{
    (void)state;
    char mark[LK_RECORD_MARK], path[PATH_MAX];
    lk_event_writer *writer = lk_event_writer_new(in_dir("events"));
    assert_non_null(writer);
    snprintf(path, sizeof path, "%s", lk_event_writer_path(writer));
    assert_int_equal(lk_event_scalar(writer, "kept", 1, 1, 1), LK_OK);
    assert_int_equal(lk_event_writer_mark(writer, mark), LK_OK);
    size_t kept, size;
    free(contents_of(path, &kept));
    assert_int_equal(lk_event_scalar(writer, "taken out, which is longer", 2, 2, 2), LK_OK);
    lk_event_writer_release(writer);
    writer = lk_event_writer_reopen(path, mark);
    assert_non_null(writer);
    assert_string_equal(lk_event_writer_path(writer), path);
    assert_int_equal(lk_event_scalar(writer, "next", 2, 2, 2), LK_OK);
    lk_event_writer_release(writer);
    char *events = contents_of(path, &size);
    assert_true(memmem(events, size, "kept", 4) && memmem(events + kept, size - kept, "next", 4));
    assert_null(memmem(events, size, "taken out", 9));
    free(events);
    is_refused(lk_event_writer_reopen(in_dir("nowhere"), mark), LK_ERR_STATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_on),
        cmocka_unit_test(events_go_on),
    };
    return cmocka_run_group_tests_name("record_marks", tests, make_test_dir, remove_test_dir);
}
