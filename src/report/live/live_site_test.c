/* Answers and events about made-up runs. tests/command/serve_test.sh asks a real server about real ones. */
#include "report/live/live_site.h"

#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "io/append_file.h"
#include "lockstep/build.h"
#include "lockstep/log.h"
#include "lockstep/serve.h"

#include <utime.h>

static const char settings[] = "{\"event\":\"settings\",\"model\":\"lenet\",\"data\":\"a <b>\",\"epochs\":4}\n";
static const char first[] = "{\"event\":\"epoch\",\"epoch\":1,\"val_accuracy\":0.5,\"total_seconds\":3}\n";
static const char second[] = "{\"event\":\"epoch\",\"epoch\":2,\"val_accuracy\":0.625,\"total_seconds\":6}\n";
static const char done[] = "{\"event\":\"done\",\"digest\":\"abc\"}\n";

static int warnings;

static void count_warnings(void *user, lk_log_level level, const char *message)
{
    (void)user, (void)message;
    warnings += level == LK_LOG_WARNING;
}

/* Writes records into FOLDER/epochs.jsonl, whose last change was so many seconds ago. */
static void put_run(const char *folder, int age, const char *rest)
{
    char text[1024];
    struct stat about;
    snprintf(text, sizeof text, "%s%s", settings, rest);
    assert_int_equal(shell("mkdir -p '%s'", folder), 0);
    put_file(path_of("%s/epochs.jsonl", folder), text);
    assert_int_equal(stat(path_of("%s/epochs.jsonl", folder), &about), 0);
    struct utimbuf times = {about.st_atime - age, about.st_mtime - age};
    assert_int_equal(utime(path_of("%s/epochs.jsonl", folder), &times), 0);
}

static void append(lk_append_file *file, const char *text)
{
    assert_int_equal(lk__append(file, text, strlen(text)), LK_OK);
}

/* Looks until all is read, with a walk. */
static void look(lk_live_site *site)
{
    site->runs.next_walk = 0;
    do
        assert_int_equal(lk__live_runs_look(&site->runs), LK_OK);
    while (site->runs.has_more);
}

static void begin(lk_live_site *site, const char *folder)
{
    *site = (lk_live_site){.is_loopback = true, .cookie = "lockstep-1"};
    assert_int_equal(lk__live_runs_open(&site->runs, in_dir(folder)), LK_OK);
    look(site);
}

/* The answer's body as a text; free it. */
static char *ask_for(lk_live_site *site, const lk_live_request *request, int status)
{
    lk_live_answer answer;
    assert_int_equal(lk__live_site_answer(site, request, &answer), LK_OK);
    lk__bytes_char(&answer.body, '\0');
    char *text = strdup((const char *)answer.body.data);
    if (answer.status != status)
        fail_msg("%s: status %d: %.200s", request->path, answer.status, text);
    lk__bytes_free(&answer.body);
    return text;
}

static char *ask(lk_live_site *site, const char *path, int status)
{
    return ask_for(site, &(lk_live_request){.method = "GET", .path = path, .host = "localhost:7007"}, status);
}

static void holds(const char *text, const char *part, bool has)
{
    if (!strstr(text, part) == has)
        fail_msg("'%s' %s '%s'", text, has ? "lacks" : "has", part);
}

static void page_holds(lk_live_site *site, const char *path, const char *part, bool has)
{
    char *text = ask(site, path, 200);
    holds(text, part, has);
    free(text);
}

static char *events(lk_live_site *site, int64_t run, uint64_t *since)
{
    lk_bytes out = {0};
    assert_int_equal(lk__live_site_events(site, run, since, &out), LK_OK);
    lk__bytes_char(&out, '\0');
    char *text = strdup((const char *)out.data);
    lk__bytes_free(&out);
    return text;
}

static void event_holds(lk_live_site *site, int64_t run, uint64_t *since, const char *part)
{
    char *text = events(site, run, since);
    holds(text, part, true);
    free(text);
}

static void no_event(lk_live_site *site, int64_t run, uint64_t *since)
{
    char *text = events(site, run, since);
    assert_string_equal(text, "");
    free(text);
}

static void follows_a_run(void **state)
{
    (void)state;
    lk_live_site site;
    lk_append_file file, steps;
    char rows[128];
    put_run("runs/a", 0, "");
    put_run("runs/b", 0, done);
    put_file(in_dir("runs/a/steps.jsonl"), "");
    assert_int_equal(lk__append_open(&file, in_dir("runs/a/epochs.jsonl"), 0), LK_OK);
    assert_int_equal(lk__append_open(&steps, in_dir("runs/a/steps.jsonl"), 0), LK_OK);
    begin(&site, "runs");
    page_holds(&site, "/", "<span class=\"state trains\">trains</span></td><td data-label=\"model\">lenet", true);
    page_holds(&site, "/", "a &lt;b&gt;", true);
    page_holds(&site, "/", "2 runs, 1 of them trains", true);
    page_holds(&site, "/run/a/epochs.jsonl", "<div id=\"progress\">", true);
    int64_t a = lk__live_runs_find(&site.runs, "a/epochs.jsonl")->number;
    uint64_t list = site.runs.version, page = list, early = 0;
    no_event(&site, 0, &list);
    no_event(&site, a, &page);
    snprintf(rows, sizeof rows, "\n\nevent: part\nid: %llu\ndata: <tbody id=\"runs\">\n", (unsigned long long)list);
    event_holds(&site, 0, &early, rows);

    append(&steps, "{\"step\":1,\"epoch\":0.25,\"train_loss\":2}\n{\"step\":2,\"epoch\":0.5,\"train_lo");
    look(&site);
    event_holds(&site, 0, &list, "0.25 of 4<progress");
    event_holds(&site, a, &page, "Step 1, loss 2.000, epoch 0.25 of 4");
    append(&steps, "ss\":1.5}\n");
    append(&file, first);
    look(&site);
    event_holds(&site, 0, &list, "50.00 %");
    event_holds(&site, a, &page, "data-series=\"[[[1.000,2.000],[2.000,1.500]]]\"");
    look(&site);
    no_event(&site, 0, &list);
    no_event(&site, a, &page);

    append(&file, done);
    lk__append_close(&file);
    lk__append_close(&steps);
    look(&site);
    event_holds(&site, 0, &list, "2 runs</p>");
    event_holds(&site, a, &page, "event: reload\n");
    page_holds(&site, "/run/a/epochs.jsonl", "<code>abc</code>", true);
    assert_int_equal(shell("rm -r runs/a"), 0);
    look(&site);
    event_holds(&site, a, &page, "event: reload\n");
    free(ask(&site, "/run/a/epochs.jsonl", 404));
    lk__live_runs_free(&site.runs);
}

static void sorts_runs(void **state)
{
    (void)state;
    lk_live_site site;
    lk_append_file file;
    static const char *const names[] = {"trains", "e", "c", "b", "d/epochs-2.jsonl"};
    put_run("runs/b", 30, first);
    put_run("runs/c", 20, "");
    put_run("runs/d", 40, "");
    put_run("runs/e", 10, done);
    put_run("runs/trains", 50, first);
    assert_int_equal(shell("mv runs/d/epochs.jsonl runs/d/epochs-2.jsonl"), 0);
    assert_int_equal(lk__append_open(&file, in_dir("runs/trains/epochs.jsonl"), 0), LK_OK);
    begin(&site, "runs");
    assert_int_equal(site.runs.count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(site.runs.at[i]->title, names[i]);
    lk__append_close(&file);
    uint64_t since = site.runs.version;
    look(&site);
    event_holds(&site, 0, &since, "interrupted");
    assert_string_equal(site.runs.at[4]->title, "trains");
    lk__live_runs_free(&site.runs);
}

static void answers_only_who_may_ask(void **state)
{
    (void)state;
    lk_live_site site;
    static const struct {
        const char *host;
        int on_loopback, on_others;
    } hosts[] = {{"localhost", 200, 200},
                 {"LOCALHOST:80", 200, 200},
                 {"127.0.0.1:7007", 200, 200},
                 {"127.1.2.3", 200, 200},
                 {"[::1]:7007", 200, 200},
                 {"192.168.1.5:7007", 403, 200},
                 {"[2001:db8::1]", 403, 200},
                 {"evil.example", 403, 403},
                 {"localhost.evil.example", 403, 403},
                 {"box.example:1", 403, 200},
                 {"", 403, 403},
                 {"[", 403, 403},
                 {"127.0.0.1.example", 403, 403},
                 {"[localhost]", 403, 403},
                 {"[::1", 403, 403},
                 {"[::1]x", 403, 403},
                 {"localhost:80x", 403, 403},
                 {"localhost:", 200, 200}};
    static const struct {
        const char *path;
        int status;
    } targets[] = {{"http://localhost/", 200},      {"HTTP://127.0.0.1:7007", 200},
                   {"http://evil.example/", 403},   {"http://localhost:80/run/a/epochs.jsonl", 200},
                   {"http://localhost@evil/", 403}, {"http:///", 403},
                   {"http://localhost//", 404},     {"http://localhost/http://localhost/", 404},
                   {"https://localhost/", 404}};
    static const char *const methods[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", ""};
    put_run("runs/a", 0, done);
    begin(&site, "runs");
    site.host = "box.example";
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        for (int others = 0; others <= 1; others++) {
            site.is_loopback = !others;
            free(ask_for(&site, &(lk_live_request){.method = "GET", .path = "/", .host = hosts[i].host},
                         others ? hosts[i].on_others : hosts[i].on_loopback));
        }
    free(ask_for(&site, &(lk_live_request){.method = "GET", .path = "/"}, 403));
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        free(ask_for(
            &site,
            &(lk_live_request){.method = "GET", .path = targets[i].path, .host = i % 2 ? "evil.example" : "localhost"},
            targets[i].status));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        free(ask_for(&site, &(lk_live_request){.method = methods[i], .path = "/", .host = "localhost"}, 405));
    free(ask_for(&site, &(lk_live_request){.method = "HEAD", .path = "/", .host = "localhost"}, 200));

    /* A token must be whole and right, wherever it is. */
    char wrong[LK_LIVE_TOKEN + 1], right[LK_LIVE_TOKEN], header[LK_LIVE_TOKEN + 16];
    memset(right, 'a', sizeof right - 1);
    right[sizeof right - 1] = '\0';
    memcpy(site.token, right, sizeof right);
    static const char *const paths[] = {"/", "/page.css", "/events", "/run/a/epochs.jsonl", "/nowhere"};
    for (int kind = 0; kind < 5; kind++) {
        snprintf(wrong, sizeof wrong, "%s", right);
        wrong[sizeof right - 2] = kind == 0 ? '\0' : kind == 1 ? 'b' : 'a';
        wrong[0] = kind == 2 ? 'b' : 'a';
        if (kind == 3)
            snprintf(wrong, sizeof wrong, "%sa", right);
        if (kind == 4)
            *wrong = '\0';
        snprintf(header, sizeof header, "Bearer %s", wrong);
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
            free(ask_for(&site,
                         &(lk_live_request){.method = "GET",
                                            .path = paths[i],
                                            .host = "localhost",
                                            .token = wrong,
                                            .cookie = wrong,
                                            .authorization = header},
                         401));
    }
    free(ask(&site, "/", 401));
    lk_live_request request = {.method = "GET", .path = "/", .host = "localhost", .cookie = right};
    free(ask_for(&site, &request, 200));
    request.cookie = NULL;
    snprintf(header, sizeof header, "bearer %s", right);
    request.authorization = header;
    free(ask_for(&site, &request, 200));
    request.authorization = NULL;
    request.token = right;
    free(ask_for(&site, &request, 303));
    lk__live_runs_free(&site.runs);
}

static void opens_only_runs_below_the_folder(void **state)
{
    (void)state;
    lk_live_site site;
    static const char *const paths[] = {"/run/../secret/epochs.jsonl",
                                        "/run/a/../../secret/epochs.jsonl",
                                        "/run/a/../a/epochs.jsonl",
                                        "/run//etc/passwd",
                                        "/run/",
                                        "/run/a",
                                        "/run/a/",
                                        "/run/./a/epochs.jsonl",
                                        "/run/a/steps.jsonl",
                                        "/run/link/epochs.jsonl",
                                        "/run/linked/epochs.jsonl",
                                        "/events/../secret/epochs.jsonl",
                                        "/events/",
                                        "/../../../../etc/passwd",
                                        "/etc/passwd",
                                        "/page.css/",
                                        "//",
                                        ""};
    put_run("secret", 0, done);
    put_run("runs/a", 0, done);
    put_file(in_dir("secret/steps.jsonl"), "{\"step\":1,\"train_loss\":2.5}\n");
    put_file(in_dir("secret/words"), "secret words\n");
    put_file(in_dir("secret/mistakes.png"), "\x89PNG\r\n\x1a\nrest");
    assert_int_equal(
        shell("ln -s ../secret runs/link && mkdir runs/linked && ln -s ../../secret/epochs.jsonl runs/linked"
              " && cd runs/a && ln -s ../../secret/steps.jsonl && ln -s ../../secret/words trace.json && "
              "ln -s ../../secret/words evaluation.json && ln -s ../../secret/mistakes.png"),
        0);
    begin(&site, "runs");
    assert_int_equal(site.runs.count, 1);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        free(ask(&site, paths[i], 404));
    const char *const page = "/run/a/epochs.jsonl";
    page_holds(&site, page, "steps.jsonl: leads out of the folder", true);
    page_holds(&site, page, "trace.json: leads out of the folder", true);
    page_holds(&site, page, "evaluation.json: leads out of the folder", true);
    page_holds(&site, page, "mistakes.png: leads out of the folder", true);
    page_holds(&site, page, "secret words", false);
    page_holds(&site, page, "data:image", false);

    /* A file that is replaced by a link later, and a link that stays inside. */
    assert_int_equal(shell("rm runs/a/steps.jsonl && mkdir runs/b && cp secret/steps.jsonl runs/b && "
                           "ln -s ../b/steps.jsonl runs/a && cp runs/a/epochs.jsonl runs/b"),
                     0);
    look(&site);
    page_holds(&site, page, "training loss by step", true);
    assert_int_equal(shell("rm runs/b/epochs.jsonl && ln -s ../../secret/words runs/b/epochs.jsonl"), 0);
    assert_int_equal(lk__live_runs_look(&site.runs), LK_OK); /* before the next walk */
    char *text = ask(&site, "/run/b/epochs.jsonl", 422);
    holds(text, "leads out of the folder", true);
    free(text);
    lk__live_runs_free(&site.runs);
}

static void shows_damaged_runs_as_text(void **state)
{
    (void)state;
    lk_live_site site;
    put_run("runs/<h1 id=injected>", 0, first);
    put_run("runs/bad", 0, "{\"<script>\":\n");
    put_run("runs/steps", 0, done);
    put_file(in_dir("runs/steps/steps.jsonl"), "<script>\n");
    assert_int_equal(shell("mkfifo runs/steps/trace.json runs/steps/scaling.json && head -c 67108865 /dev/zero "
                           ">runs/bad/epochs-2.jsonl"),
                     0);
    begin(&site, "runs");
    page_holds(&site, "/", "bad/epochs.jsonl:2: is not JSON", true);
    page_holds(&site, "/", "bad/epochs-2.jsonl: has more than 67108864 bytes", true);
    page_holds(&site, "/", "<a href=\"/run/%3Ch1%20id=injected%3E/epochs.jsonl\">&lt;h1 id=injected&gt;</a>", true);
    page_holds(&site, "/", "<script>", false);
    page_holds(&site, "/run/steps/epochs.jsonl", "steps.jsonl:1: is not JSON", true);
    page_holds(&site, "/run/steps/epochs.jsonl", "trace.json: is no file", true);
    page_holds(&site, "/run/steps/epochs.jsonl", "scaling.json: is no file", true);
    page_holds(&site, "/run/<h1 id=injected>/epochs.jsonl", "<h1 id", false);
    free(ask(&site, "/run/bad/epochs.jsonl", 422));

    /* It is read again when it changes. */
    uint64_t since = site.runs.version;
    put_run("runs/bad", 1, second);
    look(&site);
    event_holds(&site, 0, &since, "62.50 %");
    lk__live_runs_free(&site.runs);
}

static void outlives_its_folder(void **state)
{
    (void)state;
    lk_live_site site;
    put_run("runs/a", 0, done);
    begin(&site, "runs");
    uint64_t since = site.runs.version;
    warnings = 0;
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
    assert_int_equal(shell("mv runs gone"), 0);
    look(&site);
    look(&site);
    assert_int_equal(warnings, 1);
    event_holds(&site, 0, &since, "runs: cannot be read: No such file or directory");
    page_holds(&site, "/", "cannot be read", true);
    assert_int_equal(shell("mv gone runs"), 0);
    look(&site);
    event_holds(&site, 0, &since, "<a href=\"/run/a/epochs.jsonl\">a</a>");
    assert_int_equal(warnings, 1);
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
    lk__live_runs_free(&site.runs);
    assert_int_equal(lk__live_runs_open(&site.runs, in_dir("nowhere")), LK_ERR_NOT_FOUND);
    lk_error_clear();
    lk__live_runs_free(&site.runs);
    assert_int_equal(lk__live_runs_open(&site.runs, in_dir("runs/a/epochs.jsonl")), LK_ERR_IO);
    lk_error_clear();
    lk__live_runs_free(&site.runs);
}

static lk_status do_all(lk_live_site *site)
{
    static const char *const paths[] = {"/", "/page.js", "/run/a/epochs.jsonl", "/nowhere"};
    lk_status status = lk__live_runs_open(&site->runs, in_dir("runs"));
    if (status == LK_OK)
        status = lk__live_runs_look(&site->runs);
    for (size_t i = 0; i < sizeof paths / sizeof *paths && status == LK_OK; i++) {
        lk_live_answer answer;
        status = lk__live_site_answer(site, &(lk_live_request){.method = "GET", .path = paths[i], .host = "localhost"},
                                      &answer);
        lk__bytes_free(&answer.body);
    }
    for (int64_t run = 0; run <= 1 && status == LK_OK; run++) {
        lk_bytes out = {0};
        uint64_t since = 0;
        status = lk__live_site_events(site, run, &since, &out);
        lk__bytes_free(&out);
    }
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    put_run("runs/a", 0, first);
    put_run("runs/bad", 0, "{\n");
    put_file(in_dir("runs/a/steps.jsonl"), "{\"step\":1,\"train_loss\":2}\n");
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_live_site site = {.is_loopback = true};
        lk_status status = do_all(&site);
        stop_failing_with(&f, status);
        lk__live_runs_free(&site.runs);
    }
}

static void refuses_ports_that_do_not_exist(void **state)
{
    lk_page_server *server;
    if (!lk_build_has("libmicrohttpd")) {
        printf("SKIP: this build has no libmicrohttpd\n");
        skip();
    }
    for (int port = -1; port <= 65536; port += 65537) {
        assert_int_equal(lk_page_server_new(*state, &(lk_serve_opts){.port = port}, &server), LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), "must be from 0"));
        assert_null(server);
        lk_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(follows_a_run),
        FOLDER_TEST(sorts_runs),
        FOLDER_TEST(answers_only_who_may_ask),
        FOLDER_TEST(opens_only_runs_below_the_folder),
        FOLDER_TEST(shows_damaged_runs_as_text),
        FOLDER_TEST(outlives_its_folder),
        FOLDER_TEST(refuses_ports_that_do_not_exist),
        FOLDER_TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
