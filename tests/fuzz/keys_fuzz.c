/* Reads keys: the process's own file, then, after a zero byte, the file of allowed ones. */
#include "fuzz.h"

#include "dist/service/keys.h"

#include <string.h>

static char folder[64], own[96], allowed[96];

static void put(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void remove_all(void)
{
    remove(own);
    remove(allowed);
    rmdir(folder);
}

static void make(void)
{
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/own.key", folder);
    snprintf(allowed, sizeof allowed, "%s/allowed", folder);
    atexit(remove_all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_keys keys;
    if (!*folder)
        make();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size;
    put(own, data, first);
    put(allowed, data + first + !!zero, size - first - !!zero);
    if (!fuzz_went_well(lk__keys_read(own, &keys)))
        return 0;
    FUZZ_CHECK(strlen(keys.public_key) == LK_KEY_TEXT - 1 && strlen(keys.secret_key) == LK_KEY_TEXT - 1);
    for (int i = 0; i < keys.n; i++) {
        FUZZ_CHECK(strlen(keys.allowed[i].key) == LK_KEY_TEXT - 1 && strlen(keys.allowed[i].name) < LK_KEY_NAME);
        FUZZ_CHECK(lk__keys_find_name(&keys, keys.allowed[i].key) && lk__keys_find_key(&keys, keys.allowed[i].name));
    }
    lk__keys_free(&keys);
    return 0;
}
