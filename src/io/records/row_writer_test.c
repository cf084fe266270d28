#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "lockstep/record.h"

#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static lk_status write_row(lk_row_writer *writer, int64_t epoch, double loss, const char *note)
{
    const lk_field fields[] = {LK_INT("epoch", epoch), LK_REAL("loss", loss), LK_TEXT("note", note)};
    return lk_row_write(writer, fields, 3);
}

static lk_row_writer *open_rows(const char *name, lk_row_format format, bool append)
{
    lk_row_writer *writer = lk_row_writer_new(in_dir(name), format, append);
    assert_non_null(writer);
    return writer;
}

static void csv_is_quoted_as_rfc_4180_says(void **state)
{
    (void)state;
    lk_row_writer *writer = open_rows("a.csv", LK_ROWS_CSV, false);
    assert_int_equal(write_row(writer, 1, 0.1, "plain"), LK_OK);
    assert_contents(in_dir("a.csv"), "epoch,loss,note\n1,0.1,plain\n");
    assert_int_equal(write_row(writer, 2, 2, "a,b"), LK_OK);
    assert_int_equal(write_row(writer, -3, NAN, "say \"x\""), LK_OK);
    assert_int_equal(write_row(writer, INT64_MAX, -INFINITY, "two\nlines"), LK_OK);
    assert_int_equal(write_row(writer, 5, 1e-300, NULL), LK_OK);
    lk_row_writer_release(writer);
    assert_contents(in_dir("a.csv"), "epoch,loss,note\n1,0.1,plain\n2,2.0,\"a,b\"\n-3,nan,\"say \"\"x\"\"\"\n"
                                     "9223372036854775807,-inf,\"two\nlines\"\n5,1.0e-300,\n");
}

/* A JSON parser reads back what was written. */
static void json_lines_read_back(void **state)
{
    (void)state;
    const double numbers[] = {0.1, 1.0 / 3, 1e22, 5e-324, -2.5e-7, 123456789.0, 0};
    lk_row_writer *writer = open_rows("a.jsonl", LK_ROWS_JSON, false);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const lk_field fields[] = {LK_REAL("number", numbers[i]),
                                   LK_TEXT("te\"xt", "\"\\\n\t\x01 ä \xFF"),
                                   LK_NONE("none"),
                                   LK_BOOL("yes", true),
                                   LK_REAL("nan", NAN),
                                   LK_INT("int", -7)};
        assert_int_equal(lk_row_write(writer, fields, 6), LK_OK);
    }
    lk_row_writer_release(writer);
    char *text = contents_of(in_dir("a.jsonl"), NULL), *line = text;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++, line = strchr(line, '\n') + 1) {
        json_error_t error;
        json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, &error);
        assert_non_null(row);
        assert_true(json_real_value(json_object_get(row, "number")) == numbers[i]);
        assert_string_equal(json_string_value(json_object_get(row, "te\"xt")), "\"\\\n\t\x01 ä \xEF\xBF\xBD");
        assert_true(json_is_null(json_object_get(row, "none")));
        assert_true(json_is_true(json_object_get(row, "yes")));
        assert_string_equal(json_string_value(json_object_get(row, "nan")), "NaN");
        assert_int_equal(json_integer_value(json_object_get(row, "int")), -7);
        json_decref(row);
    }
    assert_int_equal(*line, '\0');
    free(text);
}

static void numbers_have_a_point_in_any_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("SKIP: the locale de_DE.UTF-8 is not installed\n");
        skip();
    }
    lk_row_writer *writer = open_rows("locale.csv", LK_ROWS_CSV, false);
    lk_status status = write_row(writer, 1, 0.25, "");
    lk_row_writer_release(writer);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(status, LK_OK);
    assert_contents(in_dir("locale.csv"), "epoch,loss,note\n1,0.25,\n");
}

static void appending_takes_out_an_unfinished_line(void **state)
{
    (void)state;
    const struct {
        lk_row_format format;
        const char *before, *after;
    } cases[] = {
        {LK_ROWS_CSV, "", "epoch,loss,note\n2,0.5,\n"},
        {LK_ROWS_CSV, "epoch,lo", "epoch,loss,note\n2,0.5,\n"},
        {LK_ROWS_CSV, "epoch,loss,note\n", "epoch,loss,note\n2,0.5,\n"},
        {LK_ROWS_CSV, "epoch,loss,note\n1,0.75,\n", "epoch,loss,note\n1,0.75,\n2,0.5,\n"},
        {LK_ROWS_CSV, "epoch,loss,note\n1,0.7", "epoch,loss,note\n2,0.5,\n"},
        {LK_ROWS_CSV, "epoch,loss,note\n1,0.7,\"a\nb", "epoch,loss,note\n2,0.5,\n"},
        {LK_ROWS_JSON, "", "{\"epoch\":2,\"loss\":0.5,\"note\":null}\n"},
        {LK_ROWS_JSON, "{\"epoch\":1}\n{\"epo", "{\"epoch\":1}\n{\"epoch\":2,\"loss\":0.5,\"note\":null}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(in_dir("rows"), cases[i].before);
        lk_row_writer *writer = open_rows("rows", cases[i].format, true);
        assert_int_equal(write_row(writer, 2, 0.5, NULL), LK_OK);
        lk_row_writer_release(writer);
        assert_contents(in_dir("rows"), cases[i].after);
    }
}

static void foreign_files_are_left_alone(void **state)
{
    (void)state;
    const struct {
        lk_row_format format;
        const char *before, *message;
    } cases[] = {
        {LK_ROWS_CSV, "epoch,accuracy\n1,2\n", "has other columns than epoch,loss,note"},
        {LK_ROWS_CSV, "epoch,loss,note,more\n", "has other columns"},
        {LK_ROWS_CSV, "my notes", "has other columns"},
        {LK_ROWS_JSON, "my notes", "does not begin with {"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(in_dir("rows"), cases[i].before);
        lk_row_writer *writer = open_rows("rows", cases[i].format, true);
        assert_int_equal(write_row(writer, 2, 0.5, NULL), LK_ERR_FORMAT);
        assert_non_null(strstr(lk_error_message(), cases[i].message));
        assert_non_null(strstr(lk_error_message(), in_dir("rows")));
        lk_error_clear();
        lk_row_writer_release(writer);
        assert_contents(in_dir("rows"), cases[i].before);
    }
}

static void columns_do_not_change(void **state)
{
    (void)state;
    lk_row_writer *writer = open_rows("b.csv", LK_ROWS_CSV, false);
    assert_int_equal(lk_row_write(writer, NULL, 0), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_row_write(writer, &LK_INT("", 1), 1), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_row_write(writer, &LK_INT("epoch", 1), 1), LK_OK);
    assert_int_equal(lk_row_write(writer, &LK_INT("step", 1), 1), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "step"));
    lk_error_clear();
    assert_int_equal(lk_row_write(writer, &LK_INT("epoch", 2), 1), LK_OK);
    lk_row_writer_release(writer);
    assert_contents(in_dir("b.csv"), "epoch\n1\n2\n");
}

/* The disk is full in the middle of a line. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    lk_row_writer *writer = open_rows("full.csv", LK_ROWS_CSV, false);
    assert_int_equal(write_row(writer, 1, 0.5, "x"), LK_OK);
    limit = (struct rlimit){.rlim_cur = strlen("epoch,loss,note\n1,0.5,x\n2,0"), .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    lk_status status = write_row(writer, 2, 0.5, "y");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, LK_ERR_IO);
    assert_non_null(strstr(lk_error_message(), "full.csv cannot be written"));
    lk_error_clear();
    assert_contents(in_dir("full.csv"), "epoch,loss,note\n1,0.5,x\n");
    assert_int_equal(write_row(writer, 3, 0.5, "z"), LK_OK);
    lk_row_writer_release(writer);
    assert_contents(in_dir("full.csv"), "epoch,loss,note\n1,0.5,x\n3,0.5,z\n");
}

static void folders_that_are_not_there(void **state)
{
    (void)state;
    assert_null(lk_row_writer_new(in_dir("no/such/file.csv"), LK_ROWS_CSV, false));
    assert_int_equal(lk_error_status(), LK_ERR_IO);
    lk_error_clear();
    assert_int_equal(lk_make_directory(in_dir("no/such")), LK_OK);
    assert_int_equal(lk_make_directory(in_dir("no/such/")), LK_OK);
    lk_row_writer_release(lk_row_writer_new(in_dir("no/such/file.csv"), LK_ROWS_CSV, false));
    assert_int_equal(lk_make_directory(in_dir("no/such/file.csv")), LK_ERR_IO);
    assert_non_null(strstr(lk_error_message(), "there is a file of that name"));
    lk_error_clear();
    assert_int_equal(lk_make_directory(""), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (failing f = fail_every(1); fail_next(&f);) {
        put_file(in_dir("rows"), "epoch,loss,note\n1,0.5,x\n");
        lk_row_writer *writer = lk_row_writer_new(in_dir("rows"), LK_ROWS_CSV, true);
        lk_status status = writer ? write_row(writer, 2, 0.5, "y") : LK_ERR_MEMORY;
        stop_failing_with(&f, status);
        lk_row_writer_release(writer);
        assert_contents(in_dir("rows"),
                        f.reached ? "epoch,loss,note\n1,0.5,x\n" : "epoch,loss,note\n1,0.5,x\n2,0.5,y\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_is_quoted_as_rfc_4180_says),     cmocka_unit_test(json_lines_read_back),
        cmocka_unit_test(numbers_have_a_point_in_any_locale), cmocka_unit_test(appending_takes_out_an_unfinished_line),
        cmocka_unit_test(foreign_files_are_left_alone),       cmocka_unit_test(columns_do_not_change),
        cmocka_unit_test(a_full_disk_leaves_whole_lines),     cmocka_unit_test(folders_that_are_not_there),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("row_writer", tests, make_test_dir, remove_test_dir);
}
