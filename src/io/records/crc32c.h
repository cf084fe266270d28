/* CRC-32C (Castagnoli; RFC 3720, appendix B.4). It differs from zlib's crc32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t lk__crc32c(const void *data, size_t size);
