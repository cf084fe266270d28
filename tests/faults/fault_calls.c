/* The wrappers: each asks fault_of whether it fails, and otherwise calls the function of the C library and records what
 * that has changed. A failing call changes nothing, except that close and fclose close. */
#include "fault_plan.h"
#include "fault_record.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAULT_EXPORT __attribute__((visibility("default")))

/* Declares `real`, the C library's function of this name. */
#define FAULT_REAL(name)             \
    static __typeof__(&(name)) real; \
    if (!real)                       \
    real = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name)

/* Returns from the wrapper if its call is to fail. */
#define FAULT_MAY_FAIL(name, path, fd, result)                                     \
    do {                                                                           \
        int error = fault_of(FAULT_##name, __builtin_return_address(0), path, fd); \
        if (error) {                                                               \
            errno = error;                                                         \
            return result;                                                         \
        }                                                                          \
    } while (0)

/* Records a change if the call before has made it, and unlocks the log. Keeps errno. */
#define FAULT_RECORD(is_locked, was_made, call) \
    do {                                        \
        int kept = errno;                       \
        if ((is_locked) && (was_made))          \
            call;                               \
        if (is_locked)                          \
            fault_record_unlock();              \
        errno = kept;                           \
    } while (0)

/* --- files -------------------------------------------------------------------------------------------------------- */

FAULT_EXPORT int open(const char *path, int flags, ...)
{
    FAULT_REAL(open);
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    FAULT_MAY_FAIL(open, path, -1, -1);
    if (!(flags & (O_CREAT | O_TRUNC)))
        return real(path, flags, mode);
    bool locked = fault_record_lock(), was_there = access(path, F_OK) == 0;
    int fd = real(path, flags, mode);
    FAULT_RECORD(locked && !was_there, fd >= 0, fault_record("create", path, NULL));
    if (locked && was_there)
        FAULT_RECORD(true, fd >= 0 && flags & O_TRUNC, fault_record_truncate(fd, 0));
    return fd;
}

FAULT_EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    FAULT_REAL(write);
    int error = fault_of(FAULT_write, __builtin_return_address(0), NULL, fd);
    if (error == FAULT_SHORT) {
        size = size / 2 + size % 2;
    } else if (error) {
        errno = error;
        return -1;
    }
    bool locked = fault_record_lock();
    ssize_t written = real(fd, data, size);
    FAULT_RECORD(locked, written > 0, fault_record_write(fd, data, (size_t)written, lseek(fd, 0, SEEK_CUR) - written));
    return written;
}

FAULT_EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    FAULT_REAL(pwrite);
    int error = fault_of(FAULT_pwrite, __builtin_return_address(0), NULL, fd);
    if (error == FAULT_SHORT) {
        size = size / 2 + size % 2;
    } else if (error) {
        errno = error;
        return -1;
    }
    bool locked = fault_record_lock();
    ssize_t written = real(fd, data, size, offset);
    FAULT_RECORD(locked, written > 0, fault_record_write(fd, data, (size_t)written, offset));
    return written;
}

FAULT_EXPORT ssize_t read(int fd, void *data, size_t size)
{
    FAULT_REAL(read);
    FAULT_MAY_FAIL(read, NULL, fd, -1);
    return real(fd, data, size);
}

FAULT_EXPORT ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    FAULT_REAL(pread);
    FAULT_MAY_FAIL(pread, NULL, fd, -1);
    return real(fd, data, size, offset);
}

FAULT_EXPORT int fsync(int fd)
{
    FAULT_REAL(fsync);
    FAULT_MAY_FAIL(fsync, NULL, fd, -1);
    bool locked = fault_record_lock();
    int result = real(fd);
    FAULT_RECORD(locked, result == 0, fault_record_sync(fd));
    return result;
}

FAULT_EXPORT int fdatasync(int fd)
{
    FAULT_REAL(fdatasync);
    FAULT_MAY_FAIL(fdatasync, NULL, fd, -1);
    bool locked = fault_record_lock();
    int result = real(fd);
    FAULT_RECORD(locked, result == 0, fault_record_sync(fd));
    return result;
}

FAULT_EXPORT int ftruncate(int fd, off_t size)
{
    FAULT_REAL(ftruncate);
    FAULT_MAY_FAIL(ftruncate, NULL, fd, -1);
    bool locked = fault_record_lock();
    int result = real(fd, size);
    FAULT_RECORD(locked, result == 0, fault_record_truncate(fd, size));
    return result;
}

FAULT_EXPORT int posix_fallocate(int fd, off_t offset, off_t size)
{
    FAULT_REAL(posix_fallocate);
    int error = fault_of(FAULT_posix_fallocate, __builtin_return_address(0), NULL, fd);
    return error ? error : real(fd, offset, size);
}

FAULT_EXPORT int close(int fd)
{
    FAULT_REAL(close);
    int error = fault_of(FAULT_close, __builtin_return_address(0), NULL, fd), result = real(fd);
    if (!error)
        return result;
    errno = error;
    return -1;
}

FAULT_EXPORT int flock(int fd, int operation)
{
    FAULT_REAL(flock);
    FAULT_MAY_FAIL(flock, NULL, fd, -1);
    return real(fd, operation);
}

FAULT_EXPORT FILE *fopen(const char *path, const char *mode)
{
    FAULT_REAL(fopen);
    FAULT_MAY_FAIL(fopen, path, -1, NULL);
    return real(path, mode);
}

FAULT_EXPORT int fflush(FILE *file)
{
    FAULT_REAL(fflush);
    int error = fault_of(FAULT_fflush, __builtin_return_address(0), NULL, file ? fileno(file) : -1);
    int result = real(file);
    if (!error)
        return result;
    errno = error;
    return EOF;
}

FAULT_EXPORT int fclose(FILE *file)
{
    FAULT_REAL(fclose);
    int error = fault_of(FAULT_fclose, __builtin_return_address(0), NULL, fileno(file)), result = real(file);
    if (!error)
        return result;
    errno = error;
    return EOF;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

FAULT_EXPORT int mkdir(const char *path, mode_t mode)
{
    FAULT_REAL(mkdir);
    FAULT_MAY_FAIL(mkdir, path, -1, -1);
    bool locked = fault_record_lock();
    int result = real(path, mode);
    FAULT_RECORD(locked, result == 0, fault_record("mkdir", path, NULL));
    return result;
}

FAULT_EXPORT int rename(const char *from, const char *to)
{
    FAULT_REAL(rename);
    FAULT_MAY_FAIL(rename, to, -1, -1);
    bool locked = fault_record_lock();
    int result = real(from, to);
    FAULT_RECORD(locked, result == 0, fault_record("rename", from, to));
    return result;
}

FAULT_EXPORT int renameat2(int folder, const char *from, int folder_to, const char *to, unsigned flags)
{
    FAULT_REAL(renameat2);
    FAULT_MAY_FAIL(renameat2, to, -1, -1);
    bool locked = fault_record_lock();
    int result = real(folder, from, folder_to, to, flags);
    FAULT_RECORD(locked, result == 0, fault_record(flags & RENAME_EXCHANGE ? "exchange" : "rename", from, to));
    return result;
}

FAULT_EXPORT int unlink(const char *path)
{
    FAULT_REAL(unlink);
    FAULT_MAY_FAIL(unlink, path, -1, -1);
    bool locked = fault_record_lock();
    int result = real(path);
    FAULT_RECORD(locked, result == 0, fault_record("unlink", path, NULL));
    return result;
}

FAULT_EXPORT int rmdir(const char *path)
{
    FAULT_REAL(rmdir);
    FAULT_MAY_FAIL(rmdir, path, -1, -1);
    bool locked = fault_record_lock();
    int result = real(path);
    FAULT_RECORD(locked, result == 0, fault_record("rmdir", path, NULL));
    return result;
}

FAULT_EXPORT DIR *opendir(const char *path)
{
    FAULT_REAL(opendir);
    FAULT_MAY_FAIL(opendir, path, -1, NULL);
    return real(path);
}

/* --- memory, processes, threads ----------------------------------------------------------------------------------- */

FAULT_EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    FAULT_REAL(mmap);
    FAULT_MAY_FAIL(mmap, NULL, fd, MAP_FAILED);
    return real(at, size, protection, flags, fd, offset);
}

FAULT_EXPORT int memfd_create(const char *name, unsigned flags)
{
    FAULT_REAL(memfd_create);
    FAULT_MAY_FAIL(memfd_create, NULL, -1, -1);
    return real(name, flags);
}

FAULT_EXPORT int pipe(int ends[2])
{
    FAULT_REAL(pipe);
    FAULT_MAY_FAIL(pipe, NULL, -1, -1);
    return real(ends);
}

FAULT_EXPORT int pipe2(int ends[2], int flags)
{
    FAULT_REAL(pipe2);
    FAULT_MAY_FAIL(pipe2, NULL, -1, -1);
    return real(ends, flags);
}

FAULT_EXPORT int dup2(int fd, int to)
{
    FAULT_REAL(dup2);
    FAULT_MAY_FAIL(dup2, NULL, fd, -1);
    return real(fd, to);
}

FAULT_EXPORT pid_t fork(void)
{
    FAULT_REAL(fork);
    FAULT_MAY_FAIL(fork, NULL, -1, -1);
    return real();
}

FAULT_EXPORT int execv(const char *path, char *const arguments[])
{
    FAULT_REAL(execv);
    FAULT_MAY_FAIL(execv, path, -1, -1);
    return real(path, arguments);
}

FAULT_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                                void *argument)
{
    FAULT_REAL(pthread_create);
    int error = fault_of(FAULT_pthread_create, __builtin_return_address(0), NULL, -1);
    return error ? error : real(thread, attributes, run, argument);
}
