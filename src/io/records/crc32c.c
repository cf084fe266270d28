#include "io/records/crc32c.h"

#include <pthread.h>

static uint32_t table[256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void crc32c_make_table(void)
{
    const uint32_t polynomial = 0x82F63B78; /* 0x1EDC6F41 with its bits reversed */
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        table[i] = crc;
    }
}

uint32_t lk__crc32c(const void *data, size_t size)
{
    pthread_once(&table_made, crc32c_make_table);
    const unsigned char *bytes = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xFF];
    return ~crc;
}
