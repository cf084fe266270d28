/* Looks at heartbeats. The watched process owns the memory and may write anything into it. The input is pieces: two
 * bytes with the place in units of 8 bytes, a byte with the length, and what is written there. After each piece the
 * watcher looks; a place of 0xffff lets it look without a change. */
#include "fuzz.h"

#include "base/heartbeat.h"
#include "lockstep/heartbeat.h"

#include <string.h>

static void look(lk_heartbeat *heartbeat)
{
    lk_heart_report report;
    lk_heartbeat_look(heartbeat, getpid(), &report);
    FUZZ_CHECK((unsigned)report.state <= LK_HEART_GONE && report.silent >= 0);
    FUZZ_CHECK(memchr(report.operation, '\0', sizeof report.operation));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lk_heartbeat *heartbeat;
    static unsigned char *memory;
    if (!heartbeat) {
        FUZZ_CHECK(lk_heartbeat_new(&heartbeat) == LK_OK);
        memory =
            mmap(NULL, sizeof(lk_heart), PROT_READ | PROT_WRITE, MAP_SHARED, lk_heartbeat_descriptor(heartbeat), 0);
        FUZZ_CHECK(memory != MAP_FAILED);
    }
    memset(memory, 0, sizeof(lk_heart));
    for (size_t at = 0; size - at >= 3;) {
        size_t place = 8 * ((size_t)data[at] | (size_t)data[at + 1] << 8), n = data[at + 2];
        at += 3;
        n = n < size - at ? n : size - at;
        if (place + n <= sizeof(lk_heart))
            memcpy(memory + place, data + at, n);
        at += n;
        look(heartbeat);
    }
    return 0;
}
