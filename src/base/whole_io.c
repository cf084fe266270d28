#include "base/whole_io.h"

#include <errno.h>
#include <unistd.h>

int lk__write_whole(int fd, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0)
            done += (size_t)n;
    }
    return 0;
}

ssize_t lk__read_whole(int fd, void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, (char *)data + done, size - done);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            break;
        if (n > 0)
            done += (size_t)n;
    }
    return (ssize_t)done;
}
