/* Lists the devices of a PJRT plug-in, with a client that is destroyed before the caller gets the list; also in another
 * process, which tells what it found through a pipe. */
#include "lockstep/pjrt.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "pjrt/pjrt.h"
#include "pjrt/pjrt_plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* An lk_pjrt that is being filled in, and the plug-in's client that is asked for it. */
typedef struct finding {
    lk_pjrt *pjrt;
    lk_pjrt_plugin plugin;
    lk_pjrt_client *client;
} finding;

static lk_status pjrt_client_text(const finding *f, const char *what, lk_pjrt_error *(*ask)(lk_pjrt_client_text *args),
                                  const char **copy)
{
    lk_pjrt_client_text args = {.head = {sizeof args, NULL}, .client = f->client};
    LK_TRY(lk__pjrt_check(&f->plugin, what, ask(&args)));
    return lk__pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_describe_device(const finding *f, lk_pjrt_device *device, const char **copy)
{
    const lk_pjrt_api *api = f->plugin.api;
    lk_pjrt_describe_device get = {.head = {sizeof get, NULL}, .device = device};
    LK_TRY(lk__pjrt_check(&f->plugin, "a device's description", api->device_description(&get)));
    lk_pjrt_description_text args = {.head = {sizeof args, NULL}, .description = get.description};
    LK_TRY(lk__pjrt_check(&f->plugin, "a device's description", api->description_debug_text(&args)));
    return lk__pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_list_devices(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_list_devices list;
    LK_TRY(lk__pjrt_list_devices(&f->plugin, f->client, &list));
    const char **devices = lk__calloc(list.n_devices + 1, sizeof *devices);
    if (!devices)
        return LK_ERR_MEMORY;
    pjrt->devices = devices;
    for (size_t d = 0; d < list.n_devices; d++) {
        LK_TRY(pjrt_describe_device(f, list.devices[d], &devices[d]));
        pjrt->n_devices++;
    }
    return LK_OK;
}

static lk_status pjrt_ask(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_create_client create = {.head = {sizeof create, NULL}};
    LK_TRY(lk__pjrt_copy_text(f->plugin.path, strlen(f->plugin.path), &pjrt->path));
    LK_TRY(lk__pjrt_load(&f->plugin));
    const lk_pjrt_api *api = f->plugin.api;
    pjrt->major = api->version.major;
    pjrt->minor = api->version.minor;
    LK_TRY(lk__pjrt_check(&f->plugin, "a client", api->client_create(&create)));
    f->client = create.client;
    LK_TRY(pjrt_client_text(f, "the platform's name", api->client_platform, &pjrt->platform));
    LK_TRY(pjrt_client_text(f, "the platform's version", api->client_version, &pjrt->version));
    return pjrt_list_devices(f);
}

static lk_status pjrt_close_client(finding *f)
{
    lk_pjrt_destroy_client args = {.head = {sizeof args, NULL}, .client = f->client};
    return f->client ? lk__pjrt_check(&f->plugin, "the end of a client", f->plugin.api->client_destroy(&args)) : LK_OK;
}

static bool pjrt_path_is_named(const char *path)
{
    return path && *path;
}

const char *lk_pjrt_default_path(void)
{
    const char *path = getenv("PJRT_PLUGIN_LIBRARY_PATH");
    if (!pjrt_path_is_named(path))
        path = getenv("TPU_LIBRARY_PATH");
    return pjrt_path_is_named(path) ? path : NULL;
}

lk_status lk__pjrt_file(const char *path, const char **file)
{
    *file = pjrt_path_is_named(path) ? path : lk_pjrt_default_path();
    if (!*file)
        LK_FAIL(LK_ERR_NOT_FOUND, "no PJRT plug-in is named: give its file, libtpu.so for TPUs, with --pjrt, "
                                  "$PJRT_PLUGIN_LIBRARY_PATH or $TPU_LIBRARY_PATH");
    return LK_OK;
}

lk_status lk_pjrt_find(const char *path, lk_pjrt **pjrt)
{
    finding f = {.pjrt = NULL};
    *pjrt = NULL;
    LK_TRY(lk__pjrt_file(path, &f.plugin.path));
    f.pjrt = lk__calloc(1, sizeof *f.pjrt);
    if (!f.pjrt)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_ask(&f), closed = pjrt_close_client(&f);
    status = status != LK_OK ? status : closed;
    if (status != LK_OK) {
        lk_pjrt_release(f.pjrt);
        return status;
    }
    *pjrt = f.pjrt;
    return LK_OK;
}

/* --- in another process ------------------------------------------------------------------------------------------- */

/* The answer is text: the status; then the error's message, or a line each for the two numbers of the version,
 * the platform, its version, the number of devices, and every device. No text has two lines. */
static void pjrt_answer(const char *path, FILE *to)
{
    lk_pjrt *pjrt;
    lk_status status = lk_pjrt_find(path, &pjrt);
    fprintf(to, "%d\n", (int)status);
    if (status != LK_OK) {
        fputs(lk_error_message(), to);
        return;
    }
    fprintf(to, "%d\n%d\n%s\n%s\n%d\n", pjrt->major, pjrt->minor, pjrt->platform, pjrt->version, pjrt->n_devices);
    for (int d = 0; d < pjrt->n_devices; d++)
        fprintf(to, "%s\n", pjrt->devices[d]);
}

/* A process of its own can be ended; a plug-in cannot be told to stop looking for devices. */
static _Noreturn void pjrt_run_child(const char *path, pid_t parent, int output)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *to = getppid() == parent ? fdopen(output, "w") : NULL;
    if (to) {
        pjrt_answer(path, to);
        fflush(to);
    }
    _exit(0);
}

/* Reads to the end of the answer. The caller frees *answer. *in_time: false if time ran out first. */
static lk_status pjrt_read_answer(int from, double seconds, char **answer, bool *in_time)
{
    int64_t capacity = 0, n = 0;
    double end = lk__seconds() + seconds;
    *answer = NULL;
    for (;;) {
        double left = end - lk__seconds();
        struct pollfd there = {.fd = from, .events = POLLIN};
        *in_time = left > 0 && poll(&there, 1, (int)fmin(1000 * left, INT_MAX - 1) + 1) > 0;
        if (!*in_time && left > 0 && errno == EINTR)
            continue;
        if (!*in_time)
            return LK_OK;
        LK_TRY(LK_GROW(*answer, &capacity, n + 4096));
        ssize_t more = read(from, *answer + n, 4095);
        if (more < 0 && errno == EINTR)
            continue;
        (*answer)[n += more > 0 ? more : 0] = '\0';
        if (more <= 0)
            return LK_OK;
    }
}

/* Returns the next line, and moves *text past it; NULL: there is none. */
static const char *pjrt_next_line(char **text)
{
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;
    if (!end)
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line;
}

/* Takes a line that is a number, from 0 on. */
static lk_status pjrt_next_number(char **text, int *number)
{
    const char *line = pjrt_next_line(text);
    char *end = NULL;
    long value = line ? strtol(line, &end, 10) : -1;
    if (!line || end == line || *end || value < 0 || value > INT_MAX)
        LK_FAIL(LK_ERR_DEVICE, "PJRT plug-in: no answer");
    *number = (int)value;
    return LK_OK;
}

static lk_status pjrt_copy_line(char **text, const char **copy)
{
    const char *line = pjrt_next_line(text);
    return line ? lk__pjrt_copy_text(line, strlen(line), copy) : lk__fail(LK_ERR_DEVICE, "its answer is cut off");
}

static lk_status pjrt_parse_found(char *text, lk_pjrt *pjrt)
{
    int n = 0;
    LK_TRY(pjrt_next_number(&text, &pjrt->major));
    LK_TRY(pjrt_next_number(&text, &pjrt->minor));
    LK_TRY(pjrt_copy_line(&text, &pjrt->platform));
    LK_TRY(pjrt_copy_line(&text, &pjrt->version));
    LK_TRY(pjrt_next_number(&text, &n));
    const char **devices = lk__calloc((size_t)n + 1, sizeof *devices);
    if (!devices)
        return LK_ERR_MEMORY;
    pjrt->devices = devices;
    for (; pjrt->n_devices < n; pjrt->n_devices++)
        LK_TRY(pjrt_copy_line(&text, &devices[pjrt->n_devices]));
    return LK_OK;
}

static lk_status pjrt_parse_answer(const char *path, char *answer, lk_pjrt **out)
{
    int status = 0;
    LK_TRY(pjrt_next_number(&answer, &status));
    if (status != LK_OK)
        return lk__fail((lk_status)status, "%s", answer);
    lk_pjrt *pjrt = lk__calloc(1, sizeof *pjrt);
    if (!pjrt)
        return LK_ERR_MEMORY;
    lk_status parsed = lk__pjrt_copy_text(path, strlen(path), &pjrt->path);
    if (parsed == LK_OK)
        parsed = pjrt_parse_found(answer, pjrt);
    if (parsed == LK_OK)
        *out = pjrt;
    else
        lk_pjrt_release(pjrt);
    return parsed;
}

/* Ends the child, unless it has ended. */
static lk_status pjrt_end_child(const char *path, pid_t child, bool in_time, double seconds)
{
    int status = 0;
    if (!in_time)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!in_time)
        LK_FAIL(LK_ERR_DEVICE, "%s: has not listed its devices within %g s", path, seconds);
    if (WIFSIGNALED(status))
        LK_FAIL(LK_ERR_DEVICE, "%s: ended by signal %d while it looked for devices", path, WTERMSIG(status));
    return LK_OK;
}

lk_status lk_pjrt_find_within(const char *path, double seconds, lk_pjrt **pjrt)
{
    int pipes[2];
    const char *file;
    *pjrt = NULL;
    LK_TRY(lk__pjrt_file(path, &file));
    if (pipe2(pipes, O_CLOEXEC) != 0)
        LK_FAIL(LK_ERR_DEVICE, "%s: %s", file, strerror(errno));
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        pjrt_run_child(file, parent, pipes[1]);
    int failed = child < 0 ? errno : 0;
    char *answer = NULL;
    bool in_time = false;
    close(pipes[1]);
    lk_status status = failed ? lk__fail(LK_ERR_DEVICE, "%s: %s", file, strerror(failed))
                              : pjrt_read_answer(pipes[0], seconds, &answer, &in_time);
    close(pipes[0]);
    if (!failed) {
        lk_status ended = pjrt_end_child(file, child, in_time, seconds);
        status = status == LK_OK ? ended : status;
    }
    if (status == LK_OK)
        status = pjrt_parse_answer(file, answer, pjrt);
    lk__free(answer);
    return status;
}

void lk_pjrt_release(lk_pjrt *pjrt)
{
    if (!pjrt)
        return;
    for (int d = 0; d < pjrt->n_devices; d++)
        lk__pjrt_free_text(pjrt->devices[d]);
    lk__free((void *)(uintptr_t)pjrt->devices);
    lk__pjrt_free_text(pjrt->version);
    lk__pjrt_free_text(pjrt->platform);
    lk__pjrt_free_text(pjrt->path);
    lk__free(pjrt);
}
