/* Downloads from a server on the loopback interface, which the test runs in a thread, well-behaved or not. */
#include "data/data_testing.h"

#include "data/catalog/catalog.h"
#include "data/catalog/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <xxhash.h>

/* ---- the server ---- */

typedef enum behavior {
    SERVE,        /* the file, or the part that Range asks for */
    BREAK_OFF,    /* half of it, then the connection ends */
    BREAK_UNSAID, /* the same, but without the length of the file */
    SERVE_BARELY, /* SERVE, but a range beyond the end is refused without the length */
    IGNORE_RANGE, /* always the whole file */
    PAGE,         /* a proxy's page instead */
    NOT_FOUND,
    ENDLESS /* far more than could be the file */
} behavior;

enum { MAX_REQUESTS = 16 };

static struct {
    int listener;
    int port;
    pthread_t thread;
    bytes body;                       /* the answer for any path */
    behavior behaviors[MAX_REQUESTS]; /* for one request after another; SERVE for the rest */
    long offsets[MAX_REQUESTS];       /* the offset that each request asked for */
    char paths[MAX_REQUESTS][64];     /* and the path */
    int requests;
} server;

static void send_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += sent;
        size -= (size_t)sent;
    }
}

static void send_head(int fd, const char *status, size_t length, const char *more)
{
    char head[256];
    int size = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n", status,
                        length, more);
    send_all(fd, head, (size_t)size);
}

static void send_file(int fd, size_t offset, behavior how)
{
    size_t size = server.body.size - offset;
    char range[128] = "";
    if (offset)
        snprintf(range, sizeof range, "Content-Range: bytes %zu-%zu/%zu\r\n", offset, server.body.size - 1,
                 server.body.size);
    size_t sent = how == BREAK_OFF || how == BREAK_UNSAID ? size / 2 : size;
    send_head(fd, offset ? "206 Partial Content" : "200 OK", how == BREAK_UNSAID ? sent : size, range);
    send_all(fd, server.body.data + offset, sent);
}

static void send_endless(int fd)
{
    static const char zeros[65536];
    send_head(fd, "200 OK", 64 * sizeof zeros, "");
    for (int i = 0; i < 64; i++)
        send_all(fd, zeros, sizeof zeros);
}

static void answer(int fd, long offset, behavior how)
{
    static const char page[] = "<!DOCTYPE html><html>Sign in to the network</html>";
    char range[128];
    if (how == PAGE) {
        send_head(fd, "200 OK", sizeof page - 1, "");
        send_all(fd, page, sizeof page - 1);
    } else if (how == NOT_FOUND) {
        send_head(fd, "404 Not Found", 0, "");
    } else if (how == ENDLESS) {
        send_endless(fd);
    } else if (how == IGNORE_RANGE) {
        send_file(fd, 0, how);
    } else if ((size_t)offset >= server.body.size) {
        snprintf(range, sizeof range, "Content-Range: bytes */%zu\r\n", server.body.size);
        send_head(fd, "416 Range Not Satisfiable", 0, how == SERVE_BARELY ? "" : range);
    } else {
        send_file(fd, (size_t)offset, how);
    }
}

static void serve_one(int fd)
{
    char request[4096] = "";
    size_t size = 0;
    while (!strstr(request, "\r\n\r\n") && size < sizeof request - 1) {
        ssize_t got = recv(fd, request + size, sizeof request - 1 - size, 0);
        if (got <= 0)
            return;
        size += (size_t)got;
        request[size] = '\0';
    }
    const char *range = strstr(request, "Range: bytes=");
    long offset = range ? strtol(range + strlen("Range: bytes="), NULL, 10) : 0;
    int number = server.requests++ % MAX_REQUESTS;
    server.offsets[number] = offset;
    server.paths[number][0] = '\0';
    sscanf(request, "GET %63s", server.paths[number]);
    answer(fd, offset, server.behaviors[number]);
    shutdown(fd, SHUT_WR);
    while (recv(fd, request, sizeof request, 0) > 0)
        ;
}

/* Serves until the listener is shut down. `server` belongs to this thread while requests run: a test accesses it only
 * before the first request, and after stop_server. */
static void *serve(void *unused)
{
    for (int fd; (fd = accept(server.listener, NULL, NULL)) >= 0;) {
        serve_one(fd);
        close(fd);
    }
    return unused;
}

static void start_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    server.requests = 0;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server.listener >= 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&address, &length), 0);
    server.port = ntohs(address.sin_port);
    assert_int_equal(listen(server.listener, 8), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    memset(server.behaviors, 0, sizeof server.behaviors);
}

/* ---- the file ---- */

static bytes content; /* an IDX file of images that hardly compresses */
static lk_remote_file remote = {.name = "train-images-idx3-ubyte"};
static char base_url[2][64];

static void describe(const bytes *data, lk_remote_file *file)
{
    XXH128_hash_t sum = XXH3_128bits(data->data, data->size);
    file->bytes = (int64_t)data->size;
    file->xxh3_high = sum.high64;
    file->xxh3_low = sum.low64;
}

static int set_up(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    setenv("no_proxy", "127.0.0.1", 1);
    setenv("XDG_CACHE_HOME", in_dir("cache"), 1);
    unsetenv("LOCKSTEP_DATA");
    content = idx_images(200, 28, 28);
    for (size_t i = 16; i < content.size; i++)
        content.data[i] = (uint8_t)XXH32(&i, sizeof i, 0);
    describe(&content, &remote);
    server.body = compressed(&content);
    return 0;
}

static int tear_down(void **state)
{
    drop(&content);
    drop(&server.body);
    return remove_test_dir(state);
}

static bool keep_going(void *user, const lk_data_progress *progress)
{
    int64_t *furthest = user;
    assert_int_equal(progress->work, LK_DATA_DOWNLOADING);
    assert_string_equal(progress->name, remote.name);
    assert_true(progress->done >= 0 && (progress->total == 0 || progress->done <= progress->total));
    *furthest = progress->done > *furthest ? progress->done : *furthest;
    return true;
}

static bool stop_half_way(void *user, const lk_data_progress *progress)
{
    (void)user;
    return progress->done < (int64_t)server.body.size / 4;
}

static lk_fetch_reason reason;

static lk_status fetch_with(lk_data_progress_fn progress, void *user)
{
    char dir[256];
    snprintf(dir, sizeof dir, "%s", in_dir("some/where"));
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    lk_fetch_job job = {
        .base_urls = {base_url[0], base_url[1][0] ? base_url[1] : NULL},
        .file = &remote,
        .dir = dir,
        .progress = progress,
        .progress_user = user,
    };
    memset(&reason, 0, sizeof reason);
    lk_status status = lk__fetch_file(&job, &reason);
    assert_int_equal(lk_error_status(), LK_OK);
    return status;
}

/* Runs one download against a server that begins with these behaviors. */
static lk_status fetch(behavior first, behavior second)
{
    server.behaviors[0] = first;
    server.behaviors[1] = second;
    start_server();
    lk_status status = fetch_with(NULL, NULL);
    stop_server();
    return status;
}

static const char *final_path(void)
{
    return in_dir("some/where/train-images-idx3-ubyte");
}

static const char *part_path(void)
{
    return in_dir("some/where/train-images-idx3-ubyte.gz.part");
}

static int64_t size_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (int64_t)status.st_size : -1;
}

static void write_part(const void *data, size_t size)
{
    mkdir(in_dir("some"), 0777);
    mkdir(in_dir("some/where"), 0777);
    write_file(part_path(), &(bytes){.data = (uint8_t *)(uintptr_t)data, .size = size});
}

static void expect_installed(lk_status status, int requests)
{
    if (status != LK_OK)
        fail_msg("%s: %s", lk_status_name(status), reason.text);
    assert_int_equal(server.requests, requests);
    uint8_t *got = malloc(content.size);
    assert_non_null(got);
    FILE *file = fopen(final_path(), "rb");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, content.size, file), content.size);
    assert_int_equal(fgetc(file), EOF);
    assert_memory_equal(got, content.data, content.size);
    fclose(file);
    free(got);
    assert_int_equal(size_of(part_path()), -1);
    assert_int_equal(size_of(in_dir("some/where/train-images-idx3-ubyte.tmp")), -1);
}

/* There must be no file of the final name, and `part_size` bytes kept for the next attempt; -1: none. */
static void expect_refused(lk_status status, lk_status expected, const char *text, int64_t part_size)
{
    assert_int_equal(status, expected);
    if (!strstr(reason.text, text))
        fail_msg("'%s' does not say '%s'", reason.text, text);
    assert_int_equal(size_of(final_path()), -1);
    assert_int_equal(size_of(in_dir("some/where/train-images-idx3-ubyte.tmp")), -1);
    assert_int_equal(size_of(part_path()), part_size);
}

/* ---- tests ---- */

static void test_downloads(void **state)
{
    (void)state;
    int64_t furthest = 0;
    start_server();
    lk_status status = fetch_with(keep_going, &furthest);
    lk_status again = fetch_with(keep_going, &furthest);
    stop_server();
    expect_installed(status, 1);
    expect_installed(again, 1);
    assert_int_equal(furthest, server.body.size);
}

static void test_goes_on_with_a_part(void **state)
{
    (void)state;
    write_part(server.body.data, 1000);
    expect_installed(fetch(SERVE, SERVE), 1);
    assert_int_equal(server.offsets[0], 1000);
}

static void test_goes_on_after_a_break(void **state)
{
    (void)state;
    expect_installed(fetch(BREAK_OFF, BREAK_OFF), 3);
    assert_int_equal(server.offsets[0], 0);
    assert_int_equal(server.offsets[1], server.body.size / 2);
    assert_true(server.offsets[2] > server.offsets[1]);
}

static void test_goes_on_after_a_break_that_nobody_told(void **state)
{
    (void)state;
    expect_installed(fetch(BREAK_UNSAID, SERVE), 2);
    assert_int_equal(server.offsets[1], server.body.size / 2);
    /* If the file is no longer than the part, the requests must end. */
    assert_int_equal(unlink(final_path()), 0);
    server.body.size /= 2;
    expect_refused(fetch(SERVE, SERVE), LK_ERR_FORMAT, "truncated: gzip data break off", -1);
    assert_in_range(server.requests, 2, 4);
}

static void test_keeps_a_part_for_the_next_run(void **state)
{
    (void)state;
    int64_t half = (int64_t)server.body.size / 2;
    expect_refused(fetch(BREAK_OFF, NOT_FOUND), LK_ERR_IO, "404", half);
    assert_int_equal(server.requests, 2);
    expect_installed(fetch(SERVE, SERVE), 1);
    assert_int_equal(server.offsets[0], half);
}

static void test_begins_again_without_ranges(void **state)
{
    (void)state;
    write_part(server.body.data, 1000);
    expect_installed(fetch(IGNORE_RANGE, IGNORE_RANGE), 2);
    assert_int_equal(server.offsets[0], 1000);
    assert_int_equal(server.offsets[1], 0);
}

static void test_begins_again_when_the_part_is_foreign(void **state)
{
    (void)state;
    char garbage[500];
    memset(garbage, 'x', sizeof garbage);
    write_part(garbage, sizeof garbage);
    expect_installed(fetch(SERVE, SERVE), 2);
    /* More than the whole file. */
    assert_int_equal(unlink(final_path()), 0);
    bytes longer = {0};
    append(&longer, server.body.data, server.body.size);
    append(&longer, garbage, sizeof garbage);
    write_part(longer.data, longer.size);
    drop(&longer);
    expect_installed(fetch(SERVE, SERVE), 2);
}

static void test_takes_a_part_that_is_complete(void **state)
{
    (void)state;
    write_part(server.body.data, server.body.size);
    expect_installed(fetch(SERVE, SERVE), 1);
    /* A server that does not say how long the file is. */
    assert_int_equal(unlink(final_path()), 0);
    write_part(server.body.data, server.body.size);
    expect_installed(fetch(SERVE_BARELY, SERVE_BARELY), 1);
}

static void test_refuses_a_page(void **state)
{
    (void)state;
    expect_refused(fetch(PAGE, PAGE), LK_ERR_FORMAT, "not gzip data: begins with '<!DOCTYPE html><'", -1);
    assert_int_equal(server.requests, 1);
}

static void replace_body(const void *data, size_t size)
{
    drop(&server.body);
    server.body = compressed(&(bytes){.data = (uint8_t *)(uintptr_t)data, .size = size});
}

static void test_refuses_other_content(void **state)
{
    (void)state;
    content.data[content.size - 1] ^= 1;
    replace_body(content.data, content.size);
    expect_refused(fetch(SERVE, SERVE), LK_ERR_FORMAT, "checksum XXH3-128", -1);
    replace_body(content.data, content.size - 1);
    expect_refused(fetch(SERVE, SERVE), LK_ERR_FORMAT, "decodes to 156815 bytes, expected 156816", -1);
    append(&content, "", 1);
    replace_body(content.data, content.size);
    expect_refused(fetch(SERVE, SERVE), LK_ERR_FORMAT, "decodes to more than 156816 bytes", -1);
    server.body.data[server.body.size / 2] ^= 1;
    expect_refused(fetch(SERVE, SERVE), LK_ERR_FORMAT, "damaged gzip data", -1);
    expect_refused(fetch(ENDLESS, SERVE), LK_ERR_IO, "sends more than", -1);
}

static void test_tries_the_next_address(void **state)
{
    (void)state;
    /* The loopback port that the server has just left refuses connections. */
    start_server();
    stop_server();
    expect_refused(fetch_with(NULL, NULL), LK_ERR_IO, "http://127.0.0.1:", -1);
    int dead = server.port;
    start_server();
    snprintf(base_url[1], sizeof base_url[1], "http://127.0.0.1:%d/data", server.port);
    server.port = dead;
    lk_status status = fetch_with(NULL, NULL);
    stop_server();
    base_url[1][0] = '\0';
    expect_installed(status, 1);
}

/* The message names the failure of each address, not only of the last. */
static void test_names_every_address(void **state)
{
    (void)state;
    start_server();
    stop_server();
    snprintf(base_url[1], sizeof base_url[1], "http://127.0.0.1:%d/dead", server.port);
    lk_status status = fetch(PAGE, PAGE);
    expect_refused(status, LK_ERR_IO, "/data/train-images-idx3-ubyte.gz: the answer is not gzip data", -1);
    expect_refused(status, LK_ERR_IO, "/dead/train-images-idx3-ubyte.gz: ", -1);
    base_url[1][0] = '\0';
}

/* A limit on file sizes stands in for a full disk. */
static void test_a_full_disk_is_no_matter_of_addresses(void **state)
{
    (void)state;
    struct rlimit limit, small;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    start_server();
    snprintf(base_url[1], sizeof base_url[1], "http://127.0.0.1:%d/other", server.port);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    lk_status status = fetch_with(NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, handler);
    stop_server();
    base_url[1][0] = '\0';
    expect_refused(status, LK_ERR_IO, "train-images-idx3-ubyte.gz.part cannot be written: File too large", 1000);
    assert_int_equal(server.requests, 1);
    expect_installed(fetch(SERVE, SERVE), 1);
    assert_int_equal(server.offsets[0], 1000);
}

static void test_stops_on_request(void **state)
{
    (void)state;
    start_server();
    lk_status status = fetch_with(stop_half_way, NULL);
    stop_server();
    int64_t kept = size_of(part_path());
    expect_refused(status, LK_ERR_INTERRUPTED, "stopped on request", kept);
    assert_true(kept >= 0);
    expect_installed(fetch(SERVE, SERVE), 1);
    assert_int_equal(server.offsets[0], kept);
}

static void *fetch_thread(void *user)
{
    lk_fetch_reason ignored;
    *(lk_status *)user =
        lk__fetch_file(&(lk_fetch_job){.base_urls = {base_url[0]}, .file = &remote, .dir = test_dir}, &ignored);
    return NULL;
}

/* The second process waits for the first, and finds the finished file. */
static void test_downloads_once_for_all(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    lk_status statuses[THREADS];
    start_server();
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fetch_thread, &statuses[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(statuses[i], LK_OK);
    }
    stop_server();
    assert_int_equal(server.requests, 1);
}

static bool never_wait(void *user, const lk_data_progress *progress)
{
    (void)user;
    return progress->work != LK_DATA_WAITING;
}

/* Takes a file that is already there, in the folder of a download that goes on. */
static bool fetch_another(void *user, const lk_data_progress *progress)
{
    (void)progress;
    lk_fetch_reason ignored;
    const lk_remote_file other = {.name = "other"};
    const lk_fetch_job job = {.file = &other, .dir = in_dir("some/where"), .progress = never_wait};
    *(lk_status *)user = lk__fetch_file(&job, &ignored);
    return true;
}

/* Whoever waits watches the part of its own file, which does not move while another file is downloaded. */
static void test_does_not_wait_for_another_file(void **state)
{
    (void)state;
    lk_status other = LK_ERR_STATE;
    mkdir(in_dir("some"), 0777);
    mkdir(in_dir("some/where"), 0777);
    write_file(in_dir("some/where/other"), &content);
    start_server();
    lk_status status = fetch_with(fetch_another, &other);
    stop_server();
    expect_installed(status, 1);
    assert_int_equal(other, LK_OK);
}

static void test_says_where_it_cannot_write(void **state)
{
    (void)state;
    bytes file = {0};
    append(&file, "x", 1);
    write_file(in_dir("some"), &file);
    drop(&file);
    expect_refused(fetch(SERVE, SERVE), LK_ERR_IO, "cannot be made", -1);
    assert_int_equal(server.requests, 0);
}

/* Its labels are already in the cache; the images are not. */
static lk_catalog_entry entry_with_labels(const bytes *labels)
{
    lk_catalog_entry entry = {.kind = {.name = "remote", .classes = 10}, .files[LK_SPLIT_TRAIN][LK__IMAGES] = remote};
    lk_remote_file *file = &entry.files[LK_SPLIT_TRAIN][LK__LABELS];
    file->name = "train-labels-idx1-ubyte";
    describe(labels, file);
    mkdir(in_dir("cache"), 0777);
    mkdir(in_dir("cache/lockstep"), 0777);
    mkdir(in_dir("cache/lockstep/remote"), 0777);
    write_gzip(in_dir("cache/lockstep/remote/train-labels-idx1-ubyte.gz"), labels);
    return entry;
}

/* Opens an entry whose files are on the server, twice. */
static void test_opens_what_it_downloads(void **state)
{
    (void)state;
    bytes labels = idx_labels(200);
    lk_catalog_entry entry = entry_with_labels(&labels);
    lk_dataset *dataset;
    drop(&labels);
    expect_failure(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &(lk_dataset_opts){.offline = true}, &dataset),
                   LK_ERR_NOT_FOUND, "downloading is switched off");
    start_server();
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    entry.base_urls[0] = base_url[0];
    for (int i = 0; i < 2; i++) {
        assert_ok(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &(lk_dataset_opts){.limit = 150}, &dataset));
        assert_int_equal(lk_dataset_count(dataset), 150);
        assert_string_equal(lk_dataset_source(dataset), in_dir("cache/lockstep/remote/train-images-idx3-ubyte"));
        assert_memory_equal(lk_dataset_images(dataset), content.data + 16, 150 * 784);
        lk_dataset_release(dataset);
    }
    stop_server();
    assert_int_equal(server.requests, 1);
    server.behaviors[0] = server.behaviors[1] = PAGE;
    start_server();
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    assert_int_equal(unlink(in_dir("cache/lockstep/remote/train-images-idx3-ubyte")), 0);
    expect_failure(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &(lk_dataset_opts){0}, &dataset), LK_ERR_NOT_FOUND,
                   "data set remote: no train-images-idx3-ubyte[.gz]", in_dir("cache/lockstep/remote"),
                   "not gzip data");
    stop_server();

    /* A mirror is asked first, and its error pages are not taken for data. */
    lk_dataset_opts opts = {0};
    server.behaviors[0] = PAGE;
    server.behaviors[1] = SERVE;
    start_server();
    char mirror[64];
    snprintf(mirror, sizeof mirror, "http://127.0.0.1:%d/mirror", server.port);
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    opts.mirror = mirror;
    assert_ok(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset));
    assert_memory_equal(lk_dataset_images(dataset), content.data + 16, 150 * 784);
    lk_dataset_release(dataset);
    stop_server();
    assert_int_equal(server.requests, 2);
    assert_string_equal(server.paths[0], "/mirror/remote/train-images-idx3-ubyte.gz");
    assert_string_equal(server.paths[1], "/data/train-images-idx3-ubyte.gz");
}

static void change_a_byte(const char *path)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 5000, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, 5000, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

/* A file of another content is replaced in the cache, but is an error in other folders. */
static void test_verifies_what_is_there(void **state)
{
    (void)state;
    bytes labels = idx_labels(200);
    lk_catalog_entry entry = entry_with_labels(&labels);
    lk_dataset *dataset;
    start_server();
    snprintf(base_url[0], sizeof base_url[0], "http://127.0.0.1:%d/data", server.port);
    entry.base_urls[0] = base_url[0];
    const char *images = in_dir("cache/lockstep/remote/train-images-idx3-ubyte");
    lk_dataset_opts opts = {.verify = true};
    assert_ok(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset));
    lk_dataset_release(dataset);
    assert_ok(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset));
    lk_dataset_release(dataset);
    assert_int_equal(server.requests, 1);
    for (int damage = 0; damage < 2; damage++) {
        images = in_dir("cache/lockstep/remote/train-images-idx3-ubyte");
        if (damage == 0)
            change_a_byte(images);
        else
            assert_int_equal(truncate(images, 9000), 0);
        opts.offline = true;
        expect_failure(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset), LK_ERR_FORMAT,
                       "cache/lockstep/remote/train-images-idx3-ubyte: checksum XXH3-128");
        opts.offline = false;
        assert_ok(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset));
        assert_memory_equal(lk_dataset_images(dataset), content.data + 16, 200 * 784);
        lk_dataset_release(dataset);
        assert_int_equal(server.requests, 2 + damage);
    }
    mkdir(in_dir("given"), 0777);
    mkdir(in_dir("given/remote"), 0777);
    write_gzip(in_dir("given/remote/train-labels-idx1-ubyte.gz"), &labels);
    content.data[5000] ^= 1;
    write_gzip(in_dir("given/remote/train-images-idx3-ubyte.gz"), &content);
    char given[256];
    snprintf(given, sizeof given, "%s", in_dir("given"));
    opts.dir = given;
    expect_failure(lk__catalog_open(&entry, LK_SPLIT_TRAIN, &opts, &dataset), LK_ERR_FORMAT,
                   "given/remote/train-images-idx3-ubyte.gz: checksum XXH3-128");
    stop_server();
    assert_int_equal(server.requests, 3);
    drop(&labels);
}

static void test_says_that_it_cannot_download(void **state)
{
    (void)state;
    assert_int_equal(fetch_with(NULL, NULL), LK_ERR_IO);
    assert_non_null(strstr(reason.text, "no libcurl"));
    assert_non_null(strstr(reason.text, in_dir("some/where")));
}

#define WITH_CONTENT(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CONTENT(test_downloads),
        WITH_CONTENT(test_goes_on_with_a_part),
        WITH_CONTENT(test_goes_on_after_a_break),
        WITH_CONTENT(test_goes_on_after_a_break_that_nobody_told),
        WITH_CONTENT(test_keeps_a_part_for_the_next_run),
        WITH_CONTENT(test_begins_again_without_ranges),
        WITH_CONTENT(test_begins_again_when_the_part_is_foreign),
        WITH_CONTENT(test_takes_a_part_that_is_complete),
        WITH_CONTENT(test_refuses_a_page),
        WITH_CONTENT(test_refuses_other_content),
        WITH_CONTENT(test_tries_the_next_address),
        WITH_CONTENT(test_names_every_address),
        WITH_CONTENT(test_a_full_disk_is_no_matter_of_addresses),
        WITH_CONTENT(test_stops_on_request),
        WITH_CONTENT(test_downloads_once_for_all),
        WITH_CONTENT(test_does_not_wait_for_another_file),
        WITH_CONTENT(test_says_where_it_cannot_write),
        WITH_CONTENT(test_opens_what_it_downloads),
        WITH_CONTENT(test_verifies_what_is_there),
    };
    const struct CMUnitTest without_libcurl[] = {
        WITH_CONTENT(test_says_that_it_cannot_download),
    };
    if (!lk__http_available)
        return cmocka_run_group_tests_name("fetch without libcurl", without_libcurl, NULL, NULL);
    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
