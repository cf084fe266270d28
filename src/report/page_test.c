/* Pages of made-up runs. tests/command/report_page_test.sh has pages of real ones. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "lockstep/runs.h"
#include "report/scaling_testing.h"
#include "report/step_records.h"

#include <math.h>

static const char lines[] =
    "{\"event\":\"settings\",\"model\":\"lenet\",\"data\":\"a <b>\",\"training samples\":64}\n"
    "{\"event\":\"world\",\"step\":3,\"processes_before\":2,\"processes\":1,\"reason\":\"lost\"}\n"
    "{\"event\":\"epoch\",\"epoch\":1,\"train_loss\":2.5,\"val_accuracy\":0.5,\"total_seconds\":3}\n"
    "{\"event\":\"done\",\"digest\":\"abc\",\"state_digest\":\"def\",\"images_per_second\":5}\n";
static const char trace[] =
    "{\"traceEvents\":[{\"ph\":\"M\",\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"cpu:0\"}},"
    "{\"ph\":\"X\",\"tid\":1,\"ts\":0,\"dur\":5,\"name\":\"push a step\",\"cat\":\"host\"},"
    "{\"ph\":\"X\",\"tid\":1,\"ts\":10,\"dur\":5,\"name\":\"push a step\",\"cat\":\"host\"},"
    "{\"ph\":\"X\",\"tid\":1,\"ts\":6,\"dur\":2,\"name\":\"conv2d\",\"cat\":\"operator\"},"
    "{\"ph\":\"X\",\"tid\":1,\"ts\":25,\"dur\":5,\"name\":\"push a step\",\"cat\":\"host\"}]}";
static const char evaluation[] = "{\"count\":4,\"accuracy\":0.75,\"classes\":[{\"name\":\"a\"},{\"name\":null}],"
                                 "\"confusion\":[[2,1],[0,1]]}";
static const char png[] = "\x89PNG\r\n\x1a\nrest";

static lk_run *made_up_run(void)
{
    lk_run *run;
    put_file(in_dir("epochs.jsonl"), lines);
    put_file(in_dir("steps.jsonl"), "{\"step\":1,\"epoch\":0.5,\"train_loss\":2.5,\"rate\":0.1}\n"
                                    "{\"step\":2,\"epoch\":1,\"train_loss\":2,\"rate\":0.1}\n{\"step\":3,");
    put_file(in_dir("trace.json"), trace);
    put_file(in_dir("evaluation.json"), evaluation);
    put_file(in_dir("mistakes.png"), png);
    assert_int_equal(lk_run_read(in_dir("epochs.jsonl"), &run), LK_OK);
    return run;
}

static void holds(const char *page, const char *text)
{
    if (!strstr(page, text))
        fail_msg("the page lacks %s", text);
}

static void shows_what_files_hold(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "run <1>", "lockstep train"};
    assert_int_equal(lk_page_write(&one, 1, in_dir("page.html")), LK_OK);
    char *page = contents_of(in_dir("page.html"), NULL);
    static const char *const texts[] = {"run &lt;1&gt;",
                                        "a &lt;b&gt;",
                                        "abc",
                                        "def",
                                        "lockstep train",
                                        "50.00 %",
                                        "training loss by step",
                                        "data-series=\"[[[1.000,2.000],[2.500,2.000]]]\"",
                                        "loss by epoch",
                                        "75.00 %",
                                        "image/png;base64,iVBORw0KGgpyZXN0\"",
                                        "conv2d, 0.002000 ms",
                                        "0.01000 ms",
                                        "lost",
                                        "training samples"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        holds(page, texts[i]);
    free(page);
    lk_run_release(run);
}

static int count_of(const char *page, const char *text)
{
    int n = 0;
    for (const char *at = page; (at = strstr(at, text)); at += strlen(text))
        n++;
    return n;
}

/* Writes a recording of threads, each with 4000 operators of 1 microsecond, and of pushes of steps at these times. */
static void put_long_trace(int threads, double first, double second, double third)
{
    FILE *file = fopen(in_dir("trace.json"), "w");
    fputs("{\"traceEvents\":[{\"ph\":\"M\",\"tid\":0,\"name\":\"process_name\"}", file);
    for (int thread = 1; thread <= threads; thread++) {
        fprintf(file, ",{\"ph\":\"M\",\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"cpu\"}}", thread);
        for (int i = 0; i < 4000; i++)
            fprintf(file, ",{\"ph\":\"X\",\"tid\":%d,\"ts\":%d,\"dur\":1,\"name\":\"add\",\"cat\":\"operator\"}",
                    thread, i);
    }
    const double pushes[] = {first, second, third};
    for (int i = 0; i < 3; i++)
        fprintf(file, ",{\"ph\":\"X\",\"tid\":0,\"ts\":%g,\"dur\":1,\"name\":\"push a step\",\"cat\":\"host\"}",
                pushes[i]);
    fputs("]}", file);
    fclose(file);
}

/* Writes a page of the runs and returns it; free it. */
static char *page_of(const lk_page_run *runs, int count)
{
    assert_int_equal(lk_page_write(runs, count, in_dir("page.html")), LK_OK);
    return contents_of(in_dir("page.html"), NULL);
}

static void draws_all_events_of_a_step(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "run", NULL};
    put_long_trace(2, 3890, 3990, 4000);
    char *page = page_of(&one, 1);
    assert_int_equal(count_of(page, "<rect class=\"k-compute\""), 200);
    free(page);
    put_long_trace(2, 0, 0, 0);
    page = page_of(&one, 1);
    holds(page, "trace.json: holds no two steps");
    free(page);
    /* As it is while its training lasts. */
    put_file(in_dir("trace.json"), "{\"traceEvents\":[{\"ph\":\"M\",\"tid\":0,\"name\":\"process_name\"}]}");
    page = page_of(&one, 1);
    assert_int_equal(count_of(page, "Left out") + count_of(page, "A step over time"), 0);
    free(page);
    lk_run_release(run);
}

/* Rows are not cut one after another, so that no device seems to wait, and the page says what it leaves out. */
static void leaves_out_the_shortest_events(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "run", NULL};
    put_long_trace(2, 0, 3990, 4000);
    char *page = page_of(&one, 1);
    holds(page, "The 4980 shortest of 7980 events are left out.");
    assert_int_equal(count_of(page, "<rect class=\"k-compute\""), 3000);
    assert_int_equal(count_of(page, "\" y=\"29\" height=\"20\""), 1500);
    free(page);
    put_long_trace(26, 3890, 3990, 4000);
    page = page_of(&one, 1);
    holds(page, "Devices and threads after the first 24 are left out: 2.");
    assert_int_equal(count_of(page, "<rect class=\"k-compute\""), 2400);
    free(page);
    lk_run_release(run);
}

static void is_exact_about_evaluations(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "run", NULL};
    put_file(in_dir("evaluation.json"), "{\"count\":60000,\"accuracy\":0.99996666,\"classes\":[{},{}],"
                                        "\"confusion\":[[30000,1],[1,29998]]}");
    char *page = page_of(&one, 1);
    holds(page, "60000 samples were evaluated, 99.99 % of them");
    free(page);
    FILE *file = fopen(in_dir("evaluation.json"), "w");
    fputs("{\"confusion\":null,\"classes\":[0", file);
    for (int i = 1; i < 4097; i++)
        fputs(",0", file);
    fputs("]}", file);
    fclose(file);
    page = page_of(&one, 1);
    holds(page, "evaluation.json: has 4097 classes; a page shows an evaluation of at most 4096");
    free(page);
    lk_run_release(run);
}

static void lacks(const char *page, const char *text)
{
    if (strstr(page, text))
        fail_msg("the page has %s", text);
}

/* Epochs 5 and 6 of a run that was resumed with another folder, without evaluation. */
static const char resumed_lines[] =
    "{\"event\":\"settings\",\"model\":\"lenet\",\"data\":\"a <b>\"}\n"
    "{\"event\":\"epoch\",\"epoch\":5,\"train_loss\":2,\"train_accuracy\":0.25,\"total_seconds\":10}\n"
    "{\"event\":\"epoch\",\"epoch\":6,\"train_loss\":1,\"train_accuracy\":0.5,\"total_seconds\":12}\n";

static void counts_epochs_of_other_folders(void **state)
{
    (void)state;
    lk_run *run;
    put_file(in_dir("epochs.jsonl"), resumed_lines);
    assert_int_equal(lk_run_read(in_dir("epochs.jsonl"), &run), LK_OK);
    const lk_page_run one = {run, "run", NULL};
    char *page = page_of(&one, 1);
    holds(page, "<b>12.0 s</b><span>for 6 epochs, with evaluation");
    free(page);
    lk_run_release(run);
}

static void compares_like_with_like(void **state)
{
    (void)state;
    lk_run *evaluated = made_up_run(), *trained;
    put_file(in_dir("epochs-2.jsonl"), resumed_lines);
    assert_int_equal(lk_run_read(in_dir("epochs-2.jsonl"), &trained), LK_OK);
    const lk_page_run runs[] = {{evaluated, "a\nb", NULL}, {trained, "c", NULL}};
    char *page = page_of(runs, 2);
    holds(page, "50.00 %</td><td class=\"n\">1</td>");
    holds(page, "50.00 % (training)</td><td class=\"n\">6</td>");
    holds(page, "lenet on a &lt;b&gt;: training loss by epoch");
    lacks(page, ": validation loss by epoch");
    holds(page, "data-series=\"[[[1.000],[2.500]],[[5.000,6.000],[2.000,1.000]]]\" data-names=\"a b\nc\"");
    free(page);
    const lk_page_run same[] = {{evaluated, "a", NULL}, {evaluated, "b", NULL}};
    page = page_of(same, 2);
    holds(page, "lenet on a &lt;b&gt;: validation accuracy by epoch");
    lacks(page, "(training)");
    free(page);
    lk_run_release(trained);
    lk_run_release(evaluated);
}

static void uses_the_words_of_parameter_servers(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "run", NULL};
    lk_scaling_report report = known_report();
    report.other = 1e-18;
    for (int servers = 0; servers <= 1; servers++) {
        report.servers = report.workers = servers;
        report.max_staleness = servers ? 0 : NAN;
        assert_int_equal(lk_scaling_write(&report, in_dir("scaling.json")), LK_OK);
        char *page = page_of(&one, 1);
        holds(page, servers ? "Mean of 20 steps of all workers: " : "Mean of 20 recorded steps over all devices: ");
        (servers ? holds : lacks)(page, "pulling and pushing");
        (servers ? holds : lacks)(page, "waiting because of --max-staleness");
        (servers ? lacks : holds)(page, "exposed exchange");
        holds(page, "other</td><td class=\"n\">0.000 ms</td><td class=\"n\">0.0 %");
        free(page);
    }
    lk_run_release(run);
}

static void refuses_wrong_numbers_of_runs(void **state)
{
    (void)state;
    assert_int_equal(lk_page_write(NULL, 0, in_dir("page.html")), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_page_write(NULL, LK_PAGE_RUNS + 1, in_dir("page.html")), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void replaces_nothing_but_pages(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run one = {run, "a", "b"};
    assert_int_equal(lk_page_write(&one, 1, in_dir("epochs.jsonl")), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "epochs.jsonl: is no page"));
    lk_error_clear();
    for (int i = 0; i < 2; i++)
        assert_int_equal(lk_page_write(&one, 1, in_dir("page.html")), LK_OK);
    lk_run_release(run);
}

static void refuses_damaged_steps(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {{"{\"step\":1}\n[]\n", "steps:2: must be a step later"},
                 {"{\"step\":2}\n{\"step\":2}\n", "steps:2: must be a step later"},
                 {"{\"step\":1\n", "steps:1: is not JSON"},
                 {"{\"step\":\"1\"}\n", "steps:1: must be a step later"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_step_records steps = {0};
        put_file(in_dir("steps"), cases[i].text);
        assert_int_equal(lk__step_records_read(in_dir("steps"), &steps), LK_ERR_FORMAT);
        holds(lk_error_message(), cases[i].message);
        lk_error_clear();
        lk__step_records_free(&steps);
    }
}

/* Without memory for it there is no new page, and the old one stays. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    lk_run *run = made_up_run();
    const lk_page_run runs[] = {{run, "a", "b"}, {run, "c", NULL}};
    for (int count = 1; count <= 2; count++) {
        for (failing f = fail_every(1); fail_next(&f);) {
            put_file(in_dir("page.html"), "<!DOCTYPE html>old");
            lk_status status = lk_page_write(runs, count, in_dir("page.html"));
            stop_failing(&f);
            char *page = contents_of(in_dir("page.html"), NULL);
            assert_int_equal(status, f.reached ? LK_ERR_MEMORY : LK_OK);
            assert_int_equal(strcmp(page, "<!DOCTYPE html>old") == 0, f.reached);
            free(page);
        }
        lk_error_clear();
    }
    lk_run_release(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(shows_what_files_hold),
        FOLDER_TEST(draws_all_events_of_a_step),
        FOLDER_TEST(leaves_out_the_shortest_events),
        FOLDER_TEST(is_exact_about_evaluations),
        FOLDER_TEST(counts_epochs_of_other_folders),
        FOLDER_TEST(compares_like_with_like),
        FOLDER_TEST(uses_the_words_of_parameter_servers),
        FOLDER_TEST(refuses_wrong_numbers_of_runs),
        FOLDER_TEST(replaces_nothing_but_pages),
        FOLDER_TEST(refuses_damaged_steps),
        FOLDER_TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
