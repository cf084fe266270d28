/* Reads lists of machines, as launch --hosts takes them. */
#include "fuzz.h"

#include "cli/cli.h"
#include "cli/launch/launch_hosts.h"

#include <string.h>

int cli_usage_error(const char *format, ...)
{
    (void)format;
    return 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int n, slots, commas = 0;
    char *text = strndup(size ? (const char *)data : "", size);
    FUZZ_CHECK(text);
    if (cli_hosts_count(text, &n, &slots)) {
        for (const char *c = text; *c; c++)
            commas += *c == ',';
        FUZZ_CHECK(n == (*text ? commas + 1 : 0));
        FUZZ_CHECK(slots >= n && slots <= n * 4096);
    }
    free(text);
    return 0;
}
