/* read(2) and write(2), repeated after a signal or a partial transfer until all bytes are transferred. */
#ifndef LK_BASE_WHOLE_IO_H
#define LK_BASE_WHOLE_IO_H

#include <stddef.h>
#include <sys/types.h>

/* Writes all of `data`. Returns 0 or an errno; then some of the bytes may have been written. */
int lk__write_whole(int fd, const void *data, size_t size);

/* Reads up to `size` bytes. Returns how many were read, which is less than `size` only at the end of the file, or -1
 * and sets errno. */
ssize_t lk__read_whole(int fd, void *data, size_t size);

#endif
