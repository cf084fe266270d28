/* Tunings are read as they were written; for any other file the message names the line. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "lockstep/build.h"
#include "lockstep/tuning.h"

#define PROBLEM "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"

static char path[PATH_MAX];

static int make_path(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s", in_dir("tuning.txt"));
    return 0;
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The first line of this machine's files, then `rest`. */
static void write_file(const char *rest)
{
    char text[2048];
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_non_null(tuning);
    snprintf(text, sizeof text, "%s\n%s", lk_tuning_machine(tuning), rest);
    lk_tuning_release(tuning);
    write_text(text);
}

static lk_tuning *read_file(void)
{
    lk_tuning *tuning = lk_tuning_read(path);
    if (!tuning)
        fail_msg("%s", lk_error_message());
    return tuning;
}

static void expect_refused(lk_status status, const char *message)
{
    assert_null(lk_tuning_read(path));
    assert_int_equal(lk_error_status(), status);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s' is not in '%s'", message, lk_error_message());
    if (!strstr(lk_error_message(), path))
        fail_msg("the file is not in '%s'", lk_error_message());
    lk_error_clear();
}

static void skip_without_alternatives(void)
{
    if (lk_build_has("oneDNN"))
        return;
    print_message("SKIP: this build has one implementation for every problem\n");
    skip();
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_int_equal(lk_tuning_set(tuning, "conv2d_weight_grad", PROBLEM, "onednn"), LK_OK);
    assert_int_equal(lk_tuning_set(tuning, "conv2d", PROBLEM, "onednn"), LK_OK);
    assert_int_equal(lk_tuning_set(tuning, "conv2d", PROBLEM, "onednn"), LK_OK);
    assert_int_equal(lk_tuning_count(tuning), 2);
    assert_int_equal(lk_tuning_write(tuning, path), LK_OK);
    lk_tuning *again = read_file();
    assert_int_equal(lk_tuning_count(again), 2);
    assert_true(lk_tuning_hash(again) == lk_tuning_hash(tuning));
    assert_int_equal(lk_tuning_set(again, "conv2d_input_grad", PROBLEM, "onednn"), LK_OK);
    assert_true(lk_tuning_hash(again) != lk_tuning_hash(tuning));
    lk_tuning_release(again);
    lk_tuning_release(tuning);
}

static void order_and_comments_do_not_matter(void **state)
{
    (void)state;
    skip_without_alternatives();
    write_file("conv2d " PROBLEM " = onednn\nconv2d_input_grad " PROBLEM " = onednn\n");
    lk_tuning *a = read_file();
    write_file("# measured by hand\n\nconv2d_input_grad " PROBLEM " = onednn  \r\nconv2d " PROBLEM " = onednn");
    lk_tuning *b = read_file();
    assert_true(lk_tuning_hash(a) == lk_tuning_hash(b));
    lk_tuning_release(a);
    lk_tuning_release(b);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    skip_without_alternatives();
    write_file("conv2d " PROBLEM " = onednn\nnonsense\n");
    expect_refused(LK_ERR_FORMAT, "line 3: must be 'OPERATOR PROBLEM = IMPLEMENTATION', not 'nonsense'");
    write_file("# nothing\nconv2d " PROBLEM " = fastest\n");
    expect_refused(LK_ERR_FORMAT, "line 3: 'fastest' does not run conv2d " PROBLEM ": must be ");
    write_file("conv2d f32 x[32,16,28,28] w[16,16,3,3] stride 2x2 padding 1x1 dilation 1x1 = lanes:avx2\n");
    expect_refused(LK_ERR_FORMAT, "line 2: 'lanes:avx2' does not run");
    write_file("relu f32 [2,2] = c\n");
    expect_refused(LK_ERR_FORMAT, "line 2: 'relu f32 [2,2]' is no problem that has alternatives");
    write_file("conv2d = onednn\n");
    expect_refused(LK_ERR_FORMAT, "line 2: must be 'OPERATOR PROBLEM = IMPLEMENTATION'");
}

static void zero_bytes_are_refused(void **state)
{
    (void)state;
    write_file("");
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputc('\0', file);
    fputs("\nnonsense\n", file);
    assert_int_equal(fclose(file), 0);
    expect_refused(LK_ERR_FORMAT, "has a zero byte, so it is no text");
}

static void other_machines_files_are_refused(void **state)
{
    (void)state;
    skip_without_alternatives();
    char text[256];
    snprintf(text, sizeof text, "lockstep %s, device cpu, instruction set pdp11, oneDNN 2.6.3\n", lk_build_version());
    write_text(text);
    expect_refused(LK_ERR_FORMAT, " is for instruction set pdp11, this is instruction set ");
    write_text("lockstep 0.0.0, device cpu, instruction set avx2, oneDNN 2.6.3\n");
    expect_refused(LK_ERR_FORMAT, " is for lockstep 0.0.0, this is lockstep ");
    snprintf(text, sizeof text, "lockstep %s, device cpu\n", lk_build_version());
    write_text(text);
    expect_refused(LK_ERR_FORMAT, "line 1: 'instruction set ");
    snprintf(text, sizeof text, "lockstep %s, device npu\n", lk_build_version());
    write_text(text);
    expect_refused(LK_ERR_FORMAT, "line 1: there are no devices of kind 'npu'");
    write_text("");
    expect_refused(LK_ERR_FORMAT, "line 1: must say what it is for");
    write_file("");
    lk_tuning *tuning = read_file();
    assert_int_equal(lk_tuning_count(tuning), 0);
    lk_tuning_release(tuning);
}

static void missing_files_are_refused(void **state)
{
    (void)state;
    unlink(path);
    expect_refused(LK_ERR_IO, "cannot be read: No such file");
    lk_tuning *tuning = lk_tuning_new("ref");
    assert_int_equal(lk_tuning_write(tuning, "/nowhere/tuning.txt"), LK_ERR_IO);
    lk_error_clear();
    assert_int_equal(lk_tuning_set(tuning, "conv2d", PROBLEM, "onednn"), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_tuning_release(tuning);
    assert_null(lk_tuning_new("npu"));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void devices_take_their_kinds_tunings(void **state)
{
    (void)state;
    lk_device *ref = lk_device_open("ref");
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_int_equal(lk_device_set_tuning(ref, tuning), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "the tuning is for devices of kind cpu, ref:0 is another");
    lk_error_clear();
    assert_int_equal(lk_device_set_tuning(ref, NULL), LK_OK);
    lk_tuning_release(tuning);
    lk_device_release(ref);
}

/* No failed allocation leaks; the sanitizer checks it. */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    skip_without_alternatives();
    write_file("conv2d " PROBLEM " = onednn\nconv2d_input_grad " PROBLEM " = onednn\n");
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_tuning *tuning = lk_tuning_read(path);
        bool written = tuning && lk_tuning_write(tuning, path) == LK_OK;
        stop_failing_with(&f, written ? LK_OK : lk_error_status());
        lk_tuning_release(tuning);
    }
}

/* Any name is taken for devices whose libraries are asked later, but none that is too long for a line. */
static void long_names_are_refused(void **state)
{
    (void)state;
    char name[400];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    lk_tuning *tuning = lk_tuning_new("cuda");
    assert_non_null(tuning);
    assert_int_equal(lk_tuning_set(tuning, "conv2d", "a problem", "engine 7"), LK_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            lk_tuning_set(tuning, i == 0 ? name : "conv2d", i == 1 ? name : "a problem", i == 2 ? name : "engine 8"),
            LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), "is too long"));
        lk_error_clear();
    }
    assert_int_equal(lk_tuning_count(tuning), 1);
    assert_int_not_equal(lk_tuning_hash(tuning), 0);
    lk_tuning_release(tuning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_names_are_refused),           cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(order_and_comments_do_not_matter), cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(other_machines_files_are_refused), cmocka_unit_test(missing_files_are_refused),
        cmocka_unit_test(devices_take_their_kinds_tunings), cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(zero_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_path, remove_test_dir);
}
