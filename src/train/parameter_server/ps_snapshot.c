#include "train/parameter_server/ps_snapshot.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "io/durable.h"
#include "optim/optimizer_opts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { FORMAT = 2 };

static const char magic[8] = "LKPSNAP";

/* The start of the file. `bytes` bytes of contents follow, in the order of ps_snapshot_lay_out. */
typedef struct preamble {
    char magic[8];
    uint32_t format, setup_bytes;
    lk_ps_setup setup;
    int64_t version, steps;
    uint64_t bytes, hash; /* of the contents */
    uint64_t own_hash;    /* of all fields above */
} preamble;

typedef struct contents {
    unsigned char *memory;
    size_t bytes;
    lk_ps_part *parts;
    lk_ps_layer *layers;
    float *packed, *state, *running;
    unsigned char *applied;
} contents;

/* --- layout ------------------------------------------------------------------------------------------------------- */

static void *ps_snapshot_part(unsigned char *memory, size_t *at, size_t bytes)
{
    void *part = memory ? memory + *at : NULL;
    *at += (bytes + 7) / 8 * 8;
    return part;
}

/* Sets the pointers to all parts in `memory`, and counts the bytes. memory NULL: only counts. */
static contents ps_snapshot_lay_out(const lk_ps_setup *setup, unsigned char *memory)
{
    const char *names[LK_OPTIMIZER_SLOTS];
    contents c = {.memory = memory};
    lk_optimizer_opts opts = {.kind = (lk_optimizer_kind)setup->optimizer, .momentum = setup->momentum};
    size_t elements = (size_t)setup->elements * sizeof(float), slots = 0;
    lk__optimizer_slots(&opts, names);
    while (slots < LK_OPTIMIZER_SLOTS && names[slots])
        slots++;
    c.parts = ps_snapshot_part(memory, &c.bytes, (size_t)setup->parts * sizeof *c.parts);
    c.layers = ps_snapshot_part(memory, &c.bytes, (size_t)setup->layers * sizeof *c.layers);
    c.packed = ps_snapshot_part(memory, &c.bytes, elements);
    c.state = ps_snapshot_part(memory, &c.bytes, slots * elements);
    c.running = ps_snapshot_part(memory, &c.bytes, (size_t)setup->statistics * sizeof(float));
    c.applied = ps_snapshot_part(memory, &c.bytes, (size_t)(setup->batches / 8 + 1));
    return c;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static lk_status ps_snapshot_fill(lk_ps_store *s, const contents *c)
{
    const lk_ps_setup *setup = &s->setup;
    memcpy(c->parts, s->parts, (size_t)setup->parts * sizeof *c->parts);
    if (setup->layers > 0)
        memcpy(c->layers, s->layers, (size_t)setup->layers * sizeof *c->layers);
    LK_TRY(lk__ps_store_read(s, c->packed, c->running));
    LK_TRY(lk__ps_store_read_state(s, c->state));
    memcpy(c->applied, s->applied, (size_t)(setup->batches / 8 + 1));
    return LK_OK;
}

static lk_status ps_snapshot_fail(const char *path, const char *what)
{
    LK_FAIL(LK_ERR_IO, "snapshot %s: cannot be %s: %s", path, what, strerror(errno));
}

static lk_status ps_snapshot_write_file(const char *path, const preamble *p, const contents *c)
{
    char temporary[PATH_MAX];
    lk_durable_file file;
    uint64_t hash;
    LK_TRY(lk__durable_temporary(path, temporary));
    LK_TRY(lk__durable_open(&file, temporary));
    lk_status status = lk__durable_put(&file, p, sizeof *p);
    if (status == LK_OK)
        status = lk__durable_put(&file, c->memory, c->bytes);
    if (status == LK_OK)
        status = lk__durable_finish(&file, &hash);
    lk__durable_abandon(&file);
    return lk__durable_rename(temporary, path, status);
}

lk_status lk__ps_snapshot_write(lk_ps_store *s, const char *path)
{
    contents c = ps_snapshot_lay_out(&s->setup, NULL);
    unsigned char *memory = lk__calloc(c.bytes, 1);
    if (!memory)
        return LK_ERR_MEMORY;
    c = ps_snapshot_lay_out(&s->setup, memory);
    lk_status status = ps_snapshot_fill(s, &c);
    if (status == LK_OK) {
        preamble p;
        memset(&p, 0, sizeof p);
        memcpy(p.magic, magic, sizeof magic);
        p.format = FORMAT;
        p.setup_bytes = sizeof p.setup;
        p.setup = s->setup;
        p.version = s->version;
        p.steps = lk_optimizer_steps(s->optimizer);
        p.bytes = c.bytes;
        p.hash = XXH3_64bits(memory, c.bytes);
        p.own_hash = XXH3_64bits(&p, offsetof(preamble, own_hash));
        status = ps_snapshot_write_file(path, &p, &c);
    }
    lk__free(memory);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static lk_status ps_snapshot_check_preamble(const char *path, const preamble *p, size_t bytes)
{
    if (bytes < sizeof *p || memcmp(p->magic, magic, sizeof magic) != 0)
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: is none: it does not begin as one does", path);
    if (p->format != FORMAT || p->setup_bytes != sizeof p->setup)
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: of format %u, and this version reads %d", path, p->format, FORMAT);
    if (p->own_hash != XXH3_64bits(p, offsetof(preamble, own_hash)))
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: its beginning is damaged", path);
    LK_TRY(lk__ps_setup_check(&p->setup, NULL, NULL));
    if (p->version < 0 || p->version > p->setup.batches || !lk__ps_is_count(p->steps, 0))
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: %lld of %lld batches are applied, in %lld steps", path,
                (long long)p->version, (long long)p->setup.batches, (long long)p->steps);
    if (p->bytes != bytes - sizeof *p || p->bytes != ps_snapshot_lay_out(&p->setup, NULL).bytes)
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: has %zu bytes, where %zu belong behind its beginning", path,
                bytes - sizeof *p, (size_t)p->bytes);
    return LK_OK;
}

static lk_status ps_snapshot_restore(const preamble *p, const contents *c, lk_ps_store **store)
{
    LK_TRY(lk__ps_store_new(&p->setup, c->parts, c->layers, store));
    lk_ps_store *s = *store;
    LK_TRY(lk__ps_store_write(s, c->packed, c->running));
    LK_TRY(lk__ps_store_write_state(s, c->state, p->steps));
    memcpy(s->applied, c->applied, (size_t)(p->setup.batches / 8 + 1));
    s->version = s->restored = p->version;
    return LK_OK;
}

static lk_status ps_snapshot_parse(const char *path, unsigned char *memory, size_t bytes, lk_ps_store **store)
{
    preamble p;
    memset(&p, 0, sizeof p);
    memcpy(&p, memory, bytes < sizeof p ? bytes : sizeof p);
    LK_TRY(ps_snapshot_check_preamble(path, &p, bytes));
    contents c = ps_snapshot_lay_out(&p.setup, memory + sizeof p);
    if (p.hash != XXH3_64bits(c.memory, c.bytes))
        LK_FAIL(LK_ERR_FORMAT, "snapshot %s: its contents are damaged", path);
    lk_status status = ps_snapshot_restore(&p, &c, store);
    if (status != LK_OK) {
        lk__ps_store_release(*store);
        *store = NULL;
    }
    return status;
}

static lk_status ps_snapshot_read_file(int fd, const char *path, lk_ps_store **store)
{
    struct stat there;
    if (fstat(fd, &there) != 0)
        return ps_snapshot_fail(path, "read");
    size_t bytes = (size_t)there.st_size;
    unsigned char *memory = lk__alloc_aligned(bytes + 1);
    if (!memory)
        return LK_ERR_MEMORY;
    lk_status status = lk__read_whole(fd, memory, bytes) == there.st_size ? LK_OK : ps_snapshot_fail(path, "read");
    if (status == LK_OK)
        status = ps_snapshot_parse(path, memory, bytes, store);
    lk__free_aligned(memory);
    return status;
}

lk_status lk__ps_snapshot_read(const char *path, lk_ps_store **store)
{
    *store = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? LK_OK : ps_snapshot_fail(path, "read");
    lk_status status = ps_snapshot_read_file(fd, path, store);
    close(fd);
    return status;
}
