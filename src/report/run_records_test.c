/* Records of runs, complete and as killed programs leave them. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "io/append_file.h"
#include "lockstep/runs.h"
#include "report/record_names.h"
#include "report/run_records.h"

#include <math.h>

static const char settings[] =
    "{\"event\":\"settings\",\"model\":\"lenet\",\"batch-size\":256,\"base-lr\":0.12345678901234,"
    "\"nesterov\":false,\"augment\":null}\n";

static const char *write_run(const char *name, const char *rest)
{
    char text[2048];
    snprintf(text, sizeof text, "%s%s", settings, rest);
    put_file(in_dir(name), text);
    return in_dir(name);
}

static lk_run *read_run(const char *path)
{
    lk_run *run;
    if (lk_run_read(path, &run) != LK_OK)
        fail_msg("%s", lk_error_message());
    return run;
}

static void refuses(const char *rest, const char *message)
{
    lk_run *run;
    assert_int_equal(lk_run_read(write_run("epochs.jsonl", rest), &run), LK_ERR_FORMAT);
    assert_null(run);
    const char *said = lk_error_message();
    if (!strstr(said, message))
        fail_msg("'%s' lacks '%s'", said, message);
    lk_error_clear();
}

static void reads_what_is_written(void **state)
{
    (void)state;
    double accuracy;
    lk_run *run = read_run(
        write_run("epochs.jsonl",
                  "{\"event\":\"epoch\",\"epoch\":1,\"train_loss\":2.5,\"val_accuracy\":0.5,\"total_seconds\":3}\n"
                  "{\"event\":\"epoch\",\"epoch\":2,\"train_loss\":1,\"val_accuracy\":0.75,\"total_seconds\":6.5}\n"
                  "{\"event\":\"epoch\",\"epoch\":3,\"train_loss\":1,\"val_accuracy\":0.75,\"total_seconds\":9}\n"
                  "{\"event\":\"done\",\"digest\":\"abc\"}\n"));
    assert_int_equal(run->n_settings, 5);
    assert_string_equal(lk_run_get_setting(run, "model"), "lenet");
    assert_string_equal(lk_run_get_setting(run, "batch-size"), "256");
    assert_string_equal(lk_run_get_setting(run, "base-lr"), "0.12345678901234");
    assert_string_equal(lk_run_get_setting(run, "nesterov"), "no");
    assert_string_equal(lk_run_get_setting(run, "augment"), "");
    assert_null(lk_run_get_setting(run, "event"));
    assert_int_equal(run->n_epochs, 3);
    assert_true(run->epochs[0].train_loss == 2.5 && isnan(run->epochs[0].rate));
    assert_true(run->seconds == 9 && run->finished);
    assert_string_equal(run->digest, "abc");
    assert_int_equal(lk_run_best(run, &accuracy)->epoch, 2);
    assert_true(accuracy == 0.75);
    lk_run_release(run);
}

static void settings_of(const char *one, const char *two, bool is_repeatable)
{
    char text[512];
    snprintf(text, sizeof text, "{\"event\":\"settings\",%s}\n", one);
    if (two)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"event\":\"settings\",%s}\n", two);
    put_file(in_dir("epochs.jsonl"), text);
    lk_run *run = read_run(in_dir("epochs.jsonl"));
    if (run->repeatable != is_repeatable)
        fail_msg("%s repeatable: %s", run->repeatable ? "" : "not", text);
    lk_run_release(run);
}

/* The last settings repeat a run if those before gave the same bits, on any devices. */
static void says_whether_settings_repeat_a_run(void **state)
{
    (void)state;
    settings_of("\"seed\":1", NULL, true);
    settings_of("\"seed\":1,\"repeatable\":false", NULL, false);
    settings_of("\"reduce\":\"tree\",\"compress\":\"none\",\"strategy in use\":\"mirrored\"", NULL, true);
    settings_of("\"reduce\":\"nccl\"", NULL, false);
    settings_of("\"compress\":\"bf16\"", NULL, false);
    settings_of("\"strategy in use\":\"parameter-server\"", NULL, false);
    settings_of("\"seed\":1,\"epochs\":2,\"schedule\":\"step\",\"devices in use\":\"cpu:0\"",
                "\"seed\":1,\"epochs\":3,\"schedule\":\"step\",\"devices in use\":\"cpu:0,cpu:1\"", true);
    settings_of("\"epochs\":2,\"schedule\":\"cosine\"", "\"epochs\":3,\"schedule\":\"cosine\"", false);
    settings_of("\"epochs\":2,\"schedule\":\"step\",\"restore-best\":true",
                "\"epochs\":3,\"schedule\":\"step\",\"restore-best\":true", false);
    settings_of("\"strategy in use\":\"parameter-server\"", "\"strategy in use\":\"mirrored\"", false);
    settings_of("\"batch-size\":20", "\"batch-size\":40", false);
    settings_of("\"weights\":\"a\"", "\"weights\":null", false);
    settings_of("\"seed\":1", "\"seed\":1,\"of-a-later-version\":2", true);
    put_file(in_dir("epochs.jsonl"), "{\"event\":\"done\"}\n");
    lk_run *run = read_run(in_dir("epochs.jsonl"));
    assert_false(run->repeatable);
    lk_run_release(run);
}

static void leaves_out_an_unfinished_line(void **state)
{
    (void)state;
    double accuracy;
    lk_run *run = read_run(write_run("epochs.jsonl",
                                     "{\"event\":\"epoch\",\"epoch\":1,\"train_accuracy\":0.25,\"val_accuracy\":null}\n"
                                     "{\"event\":\"epoch\",\"epoch\":2,\"train_acc"));
    assert_int_equal(run->n_epochs, 1);
    assert_false(run->finished);
    assert_null(run->digest);
    assert_int_equal(lk_run_best(run, &accuracy)->epoch, 1); /* training accuracy: there was no evaluation */
    assert_true(accuracy == 0.25);
    lk_run_release(run);
    run = read_run(write_run("epochs.jsonl", ""));
    assert_null(lk_run_best(run, &accuracy));
    assert_true(isnan(accuracy) && isnan(run->seconds));
    lk_run_release(run);
}

/* A run trains if a process holds its file and has not written an end. */
static void says_whether_a_run_trains(void **state)
{
    (void)state;
    static const struct {
        const char *last;
        bool trains;
    } cases[] = {{"{\"event\":\"epoch\",\"epoch\":1}\n", true},
                 {"{\"event\":\"stopped\"}\n", false},
                 {"{\"event\":\"stopped\"}\n{\"event\":\"world\"}\n", true},
                 {"{\"event\":\"done\"}\n", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_append_file file;
        const char *path = write_run("epochs.jsonl", cases[i].last);
        for (int held = 0; held <= 1; held++) {
            if (held)
                assert_int_equal(lk__append_open(&file, path, 0), LK_OK);
            lk_run *run = read_run(path);
            assert_int_equal(run->trains, held && cases[i].trains);
            lk_run_release(run);
        }
        lk__append_close(&file);
    }
}

static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void follows_a_file_that_grows(void **state)
{
    (void)state;
    const char *path = write_run("epochs.jsonl", "{\"event\":\"epoch\",\"epoch\":1}\n{\"event\":\"epoch\",\"ep");
    lk_run *run = read_run(path);
    assert_int_equal(run->n_epochs, 1);
    append(path, "och\":2,\"total_seconds\":8}\n");
    assert_int_equal(lk__run_follow(run), LK_OK);
    assert_int_equal(run->n_epochs, 2);
    assert_true(run->seconds == 8);
    assert_string_equal(lk_run_get_setting(run, "model"), "lenet");

    /* A wrong line stays wrong, and loses nothing. */
    append(path, "nonsense\n{\"event\":\"done\",\"digest\":\"abc\"}\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lk__run_follow(run), LK_ERR_FORMAT);
        assert_non_null(strstr(lk_error_message(), "epochs.jsonl:4: is not JSON"));
        lk_error_clear();
        assert_int_equal(run->n_epochs, 2);
    }

    /* Cut, as by a training that resumes, and then longer than before. */
    write_run("epochs.jsonl", "{\"event\":\"epoch\",\"epoch\":1}\n{\"event\":\"world\",\"step\":3,\"reason\":\"a\"}\n"
                              "{\"event\":\"epoch\",\"epoch\":2,\"total_seconds\":9}\n{\"event\":\"done\"}\n");
    assert_int_equal(lk__run_follow(run), LK_OK);
    assert_true(run->n_epochs == 2 && run->n_changes == 1 && run->finished && run->seconds == 9);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(lk__run_follow(run), LK_ERR_NOT_FOUND);
    lk_error_clear();
    assert_int_equal(run->n_epochs, 2);
    write_run("epochs.jsonl", "");
    assert_int_equal(lk__run_follow(run), LK_OK);
    assert_true(run->n_epochs == 0 && run->n_changes == 0 && !run->finished && isnan(run->seconds));
    lk_run_release(run);
}

static void says_what_is_wrong_where(void **state)
{
    (void)state;
    refuses("nonsense\n", "epochs.jsonl:2: is not JSON");
    refuses("{}\n", "epochs.jsonl:2: must be an object with an event");
    refuses("[1]\n", "epochs.jsonl:2: must be an object with an event");
    refuses("{\"event\":\"epoch\"}\n", "epochs.jsonl:2: must be an epoch later than the one before");
    refuses("{\"event\":\"epoch\",\"epoch\":2}\n{\"event\":\"epoch\",\"epoch\":2}\n",
            "epochs.jsonl:3: must be an epoch");
    refuses("{\"event\":\"a\",\"event\":\"b\"}\n", "epochs.jsonl:2: is not JSON");
}

static void takes_the_last_run_of_a_folder(void **state)
{
    (void)state;
    lk_run *run;
    assert_int_equal(lk_run_read(test_dir, &run), LK_ERR_NOT_FOUND);
    lk_error_clear();
    assert_int_equal(lk_run_read(in_dir("nothing"), &run), LK_ERR_NOT_FOUND);
    lk_error_clear();
    static const char *const names[] = {"epochs-10.jsonl", "epochs-9.jsonl", "epochs.jsonl", "epochs-11.csv",
                                        "epochs-012.jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        write_run(names[i], "");
    run = read_run(test_dir);
    assert_string_equal(run->path, in_dir("epochs-10.jsonl"));
    lk_run_release(run);
}

static lk_status note(void *user, const char *path)
{
    char *seen = user;
    strncat(seen, path + strlen(test_dir), 200);
    strncat(seen, " ", 2);
    return LK_OK;
}

static void visits_folders_in_order(void **state)
{
    (void)state;
    char seen[1024] = "", folder[PATH_MAX + 2];
    static const char *const folders[] = {"b", "a", "a/x", ".hidden"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(in_dir(folders[i]), 0700), 0);
    static const char *const names[] = {"b/epochs.jsonl",   "a/epochs-2.jsonl", "a/epochs-10.jsonl",
                                        "a/x/epochs.jsonl", "epochs.jsonl",     ".hidden/epochs.jsonl",
                                        "a/other.jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        write_run(names[i], "");
    assert_int_equal(symlink("..", in_dir("a/up")), 0);
    snprintf(folder, sizeof folder, "%s/", test_dir);
    assert_int_equal(lk_runs_visit(folder, note, seen), LK_OK);
    assert_string_equal(seen, "/epochs.jsonl /a/epochs-2.jsonl /a/epochs-10.jsonl /a/x/epochs.jsonl /b/epochs.jsonl ");
    assert_int_equal(lk_runs_visit(in_dir("none"), note, seen), LK_ERR_NOT_FOUND);
    lk_error_clear();
}

/* Any allocation of a read may fail. */
static void survives_failed_allocations(void **state)
{
    (void)state;
    const char *path =
        write_run("epochs.jsonl", "{\"event\":\"epoch\",\"epoch\":1}\n{\"event\":\"done\",\"digest\":\"d\"}\n");
    lk_run *run;
    failing f = fail_every(1);
    while (fail_next(&f)) {
        stop_failing_with(&f, lk_run_read(path, &run));
        assert_true((run == NULL) == f.reached);
    }
    assert_true(f.n > 8);
    lk_run_release(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(says_whether_settings_repeat_a_run), FOLDER_TEST(reads_what_is_written),
        FOLDER_TEST(leaves_out_an_unfinished_line),      FOLDER_TEST(says_what_is_wrong_where),
        FOLDER_TEST(takes_the_last_run_of_a_folder),     FOLDER_TEST(visits_folders_in_order),
        FOLDER_TEST(survives_failed_allocations),        FOLDER_TEST(says_whether_a_run_trains),
        FOLDER_TEST(follows_a_file_that_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
