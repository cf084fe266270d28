/* Scaling reports are read as they were written; for a wrong file the message names the error. */
#include "report/scaling_testing.h"
#include "base/mem_testing.h"
#include "lockstep/log.h"

static size_t read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, size - 1, file);
    text[bytes] = '\0';
    fclose(file);
    return bytes;
}

static void reports_are_read_as_they_were_written(void **state)
{
    (void)state;
    lk_scaling_report r = known_report(), read;
    r.latency = 0.1 + 0.2;
    assert_ok(lk_scaling_write(&r, in_dir("scaling.json")));
    assert_ok(lk_scaling_read(in_dir("scaling.json"), &read));
    assert_memory_equal(&read, &r, sizeof r); /* padding is zero in both, and so are the bits of NAN the same */
}

static void workers_are_read_as_they_were_written(void **state)
{
    (void)state;
    char text[8192];
    lk_scaling_report r = known_report(), read;
    const char *path = in_dir("scaling.json");
    r.servers = 1;
    r.workers = 2;
    r.max_staleness = 3;
    r.step_samples = 63.5;
    r.worker[0] = (lk_scaling_worker){"worker 0 on a", 1, 10, 635, 0.02, 0.01, 0.005, 0.002, 0.002, 0.001, 0.0125};
    r.worker[1] = (lk_scaling_worker){"worker 4 on b", 2, 12, 762, 0.03, 0.02, 0.005, 0.002, 0.002, 0.001, NAN};
    assert_ok(lk_scaling_write(&r, path));
    assert_ok(lk_scaling_read(path, &read));
    assert_true(isnan(read.worker[1].computing));
    read.worker[1].computing = r.worker[1].computing;
    assert_memory_equal(&read, &r, sizeof r);

    read_text(path, text, sizeof text);
    char *count = strstr(text, "\"workers\":2");
    assert_non_null(count);
    count[strlen("\"workers\":")] = '3';
    put_bytes(path, text, strlen(text));
    expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, "worker: must be a list of 3, as there are 3 workers");
    count[strlen("\"workers\":")] = '2';
    memcpy(strstr(text, "\"samples\":762"), "\"samplex", 8);
    put_bytes(path, text, strlen(text));
    expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, "samples is missing");
}

static void a_folder_gives_its_last_run(void **state)
{
    lk_scaling_report r = known_report(), read;
    expect_failure(lk_scaling_read(*state, &read), LK_ERR_NOT_FOUND, "holds no scaling report");
    expect_failure(lk_scaling_read(in_dir("nowhere"), &read), LK_ERR_NOT_FOUND, "no such file or folder");
    for (int run = 1; run <= 10; run++) {
        char name[64];
        snprintf(name, sizeof name, run == 1 ? "scaling.json" : "scaling-%d.json", run);
        r.batch_size = run;
        assert_ok(lk_scaling_write(&r, in_dir(name)));
    }
    put_bytes(in_dir("scaling-11.json~"), "{", 1);
    put_bytes(in_dir("scaling-x.json"), "{", 1);
    assert_ok(lk_scaling_read(*state, &read));
    assert_int_equal(read.batch_size, 10);
    assert_int_equal(mkfifo(in_dir("scaling-11.json"), 0600), 0);
    expect_failure(lk_scaling_read(*state, &read), LK_ERR_IO, "scaling-11.json: is no file");
}

static int warnings;

static void count_warnings(void *user, lk_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, LK_LOG_WARNING);
    assert_non_null(strstr(message, "epochs-2.jsonl: this run has no scaling report; the report is of run 1"));
    warnings++;
}

static void a_run_without_a_report_is_named(void **state)
{
    static const char begun[] = "{\"event\":\"settings\"}\n",
                      ended[] = "{\"event\":\"settings\"}\n{\"event\":\"done\"}\n";
    lk_scaling_report r = known_report(), read;
    put_bytes(in_dir("epochs.jsonl"), begun, strlen(begun));
    expect_failure(lk_scaling_read(*state, &read), LK_ERR_NOT_FOUND,
                   "epochs.jsonl: this run has not finished, so there is no scaling report of it");
    put_bytes(in_dir("epochs.jsonl"), ended, strlen(ended));
    expect_failure(lk_scaling_read(*state, &read), LK_ERR_NOT_FOUND, "holds no scaling report");
    put_bytes(in_dir("epochs.jsonl"), "{", 1);
    put_bytes(in_dir("epochs-2.jsonl"), "[]\n", 3);
    expect_failure(lk_scaling_read(*state, &read), LK_ERR_NOT_FOUND, "holds no scaling report");

    warnings = 0;
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
    assert_ok(lk_scaling_write(&r, in_dir("scaling.json")));
    assert_ok(lk_scaling_read(*state, &read));
    assert_int_equal(warnings, 1);
    assert_ok(lk_scaling_write(&r, in_dir("scaling-2.json")));
    assert_ok(lk_scaling_read(*state, &read));
    assert_int_equal(warnings, 1);
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
}

static void damage_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *with, *message;
    } cases[] = {
        {"\"steps\":20", "\"steps\":20.5", "scaling.json: steps: must be a whole number from 0"},
        {"\"steps\":20", "\"steps\":-1", "steps: must be a whole number from 0"},
        {"\"steps\":20", "\"steps\":9007199254740993", "steps: must be a whole number from 0 to 9007199254740992"},
        {"\"devices\":2", "\"devices\":0", "devices: must be at least 1"},
        {"\"shards\":8,", "", "shards is missing"},
        {"\"worker\":[]", "\"worker\":[{}]", "worker: must be a list of 0"},
        {"\"compute\":0.01", "\"compute\":\"x\"", "compute: must be a number, or null"},
        {"\"kind\":\"cpu\"", "\"kind\":\"a kind of device that has no end\"", "kind: must be a text of less than 16"},
        {"\"kind\":\"cpu\"", "\"kind\":3", "kind: must be a text"},
        {"\"kind\":\"cpu\"", "\"kind\":\"cpu", "line 1, column"},
    };
    char whole[8192], damaged[8192];
    lk_scaling_report r = known_report(), read;
    const char *path = in_dir("scaling.json");
    assert_ok(lk_scaling_write(&r, path));
    size_t bytes = read_text(path, whole, sizeof whole);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(whole, cases[i].text);
        assert_non_null(at);
        snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - whole), whole, cases[i].with,
                 at + strlen(cases[i].text));
        put_bytes(path, damaged, strlen(damaged));
        expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, cases[i].message);
    }
    put_bytes(path, "", 0);
    expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, "scaling.json: is empty");
    for (size_t cut = 13; cut + 1 < bytes; cut += 13) {
        put_bytes(path, whole, cut);
        expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, "scaling.json: line ");
    }
    for (const char *const *text = (const char *const[]){"[]", "[1,2]", "{}", NULL}; *text; text++) {
        put_bytes(path, *text, strlen(*text));
        expect_failure(lk_scaling_read(path, &read), LK_ERR_FORMAT, "model is missing");
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    lk_scaling_report r = known_report(), read;
    const char *path = in_dir("scaling.json");
    assert_ok(lk_scaling_write(&r, path));
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_status written = lk_scaling_write(&r, path), status = lk_scaling_read(path, &read);
        stop_failing(&f);
        assert_true((written == LK_ERR_MEMORY || status == LK_ERR_MEMORY) == f.reached);
    }
    assert_ok(lk_scaling_read(path, &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(reports_are_read_as_they_were_written),
        FOLDER_TEST(workers_are_read_as_they_were_written),
        FOLDER_TEST(a_folder_gives_its_last_run),
        FOLDER_TEST(a_run_without_a_report_is_named),
        FOLDER_TEST(damage_is_named),
        FOLDER_TEST(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
