/* CRC-32C (Castagnoli; RFC 3720, appendix B.4), which zlib's crc32 is not. */
#ifndef LK_IO_CRC32C_H
#define LK_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t lk__crc32c(const void *data, size_t size);

#endif
