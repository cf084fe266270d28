/* Reads snapshots of a parameter server. If the first byte of the input is 1, its hashes and sizes are made right, as
 * an attacker would. The file follows. */
#include "fuzz.h"

#include "train/parameter_server/ps_apply.h"
#include "train/parameter_server/ps_snapshot.h"

#include <string.h>
#include <xxhash.h>

/* The preamble's members behind the setup: version, steps, bytes, hash and own_hash. */
enum { BYTES = 16 + sizeof(lk_ps_setup) + 16, HASH = BYTES + 8, OWN_HASH = HASH + 8, PREAMBLE = OWN_HASH + 8 };

static void put_number(uint8_t *file, size_t place, uint64_t number)
{
    memcpy(file + place, &number, sizeof number);
}

static void make_right(uint8_t *file, size_t size)
{
    put_number(file, BYTES, size - PREAMBLE);
    put_number(file, HASH, XXH3_64bits(file + PREAMBLE, size - PREAMBLE));
    put_number(file, OWN_HASH, XXH3_64bits(file, OWN_HASH));
}

/* Most mutations keep the size, which the setup and the tables after it must add up to. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size_t begin = size ? seed / 8 % size : 0, n = size - begin < 16 ? size - begin : 16;
    if (seed % 8 == 0 || n == 0)
        return LLVMFuzzerMutate(data, size, most);
    size_t changed = LLVMFuzzerMutate(data + begin, n, n);
    memset(data + begin + changed, 0, n - changed);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[1 << 16];
    lk_ps_store *store;
    if (size < 1 || size - 1 > sizeof file)
        return 0;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    memcpy(file, data + 1, --size);
    if (data[0] == 1 && size >= PREAMBLE)
        make_right(file, size);
    if (!fuzz_went_well(lk__ps_snapshot_read(fuzz_file(file, size), &store)))
        return 0;
    FUZZ_CHECK(store && store->version >= 0 && store->version <= store->setup.batches);
    lk_ps_push push = {.batch = store->setup.batches - 1, .end_shard = store->setup.shards, .samples = 1, .rate = 0.1};
    lk_ps_pushed pushed;
    float *gradients = calloc((size_t)store->setup.elements, sizeof *gradients);
    double *sums = calloc((size_t)store->setup.statistics + 1, sizeof *sums);
    FUZZ_CHECK(gradients && sums && lk__ps_store_make_reply(store, -1) == LK_OK);
    fuzz_went_well(lk__ps_store_push(store, &push, gradients, sums, &pushed));
    free(gradients);
    free(sums);
    lk__ps_store_release(store);
    return 0;
}
