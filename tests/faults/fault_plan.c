#include "fault_plan.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const call_names[] = {
#define FAULT_CALL(name) [FAULT_##name] = #name,
#include "fault_calls.def"
#undef FAULT_CALL
};

/* The file of $LOCKSTEP_FAULT_COUNTS. The test reads it with od, in the order of fault_calls.def. */
typedef struct counts {
    _Atomic uint32_t calls[FAULT_CALLS];
    _Atomic uint32_t failed;
    char about[4096]; /* the path that the first failed call was about; "": none */
} counts;

static counts *shared; /* NULL: nothing counts */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static fault_call plan_call = FAULT_CALLS;
static uint32_t plan_number;
static bool plan_stays;
static int plan_error;

static int plan_parse_error(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN},
                  {"EMFILE", EMFILE}, {"EINTR", EINTR},   {"ENOLCK", ENOLCK}, {"short", FAULT_SHORT}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(name, errors[i].name) == 0)
            return errors[i].error;
    return 0;
}

static void plan_parse(const char *text)
{
    char call[32] = "", error[16] = "", stays[2] = "";
    bool is_valid = sscanf(text, "%31[a-z0-9_]:%" SCNu32 "%1[+]:%15s", call, &plan_number, stays, error) == 4 ||
                    sscanf(text, "%31[a-z0-9_]:%" SCNu32 ":%15s", call, &plan_number, error) == 3;
    for (int i = 0; is_valid && i < FAULT_CALLS; i++)
        if (strcmp(call, call_names[i]) == 0)
            plan_call = (fault_call)i;
    plan_stays = *stays != '\0';
    plan_error = plan_parse_error(error);
    if (plan_call == FAULT_CALLS || plan_number == 0 || plan_error == 0) {
        dprintf(STDERR_FILENO, "LOCKSTEP_FAULT=%s: must be CALL:NUMBER[+]:ERROR\n", text);
        _exit(99);
    }
}

/* Uses system calls, because the wrappers of the C library's functions come here. */
static void plan_open(void)
{
    const char *path = getenv("LOCKSTEP_FAULT_COUNTS"), *fault = getenv("LOCKSTEP_FAULT");
    if (!path)
        return;
    if (fault && *fault)
        plan_parse(fault);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *memory = MAP_FAILED;
    if (fd >= 0 && syscall(SYS_ftruncate, fd, sizeof(counts)) == 0)
        memory = (void *)syscall(SYS_mmap, NULL, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        dprintf(STDERR_FILENO, "LOCKSTEP_FAULT_COUNTS=%s: %s\n", path, strerror(errno));
        _exit(99);
    }
    syscall(SYS_close, fd);
    shared = memory;
}

static bool plan_is_ours(const void *caller)
{
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/'), *name = slash ? slash + 1 : info.dli_fname;
    return strncmp(name, "lockstep", 8) == 0 || strncmp(name, "liblockstep", 11) == 0;
}

static void plan_note(const char *path, int fd)
{
    char link[32];
    if (path) {
        snprintf(shared->about, sizeof shared->about, "%s", path);
    } else if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, shared->about, sizeof shared->about - 1);
        shared->about[size > 0 ? size : 0] = '\0';
    }
}

/* Pipes, sockets and streams in memory have no full disks; how often pipes are read depends on the moment. */
static bool plan_has_no_file(fault_call call, int fd)
{
    struct stat about;
    if (call == FAULT_fclose)
        return fd < 0;
    return (call == FAULT_read || call == FAULT_write) && fstat(fd, &about) == 0 && !S_ISREG(about.st_mode);
}

int fault_of(fault_call call, const void *caller, const char *path, int fd)
{
    pthread_once(&once, plan_open);
    /* dladdr takes a lock, and a signal handler that writes to a pipe may interrupt it. So pipes are left out first. */
    if (!shared || plan_has_no_file(call, fd) || !plan_is_ours(caller))
        return 0;
    uint32_t number = atomic_fetch_add(&shared->calls[call], 1) + 1;
    if (call != plan_call || number < plan_number || (number > plan_number && !plan_stays))
        return 0;
    if (atomic_fetch_add(&shared->failed, 1) == 0)
        plan_note(path, fd);
    return plan_error;
}
