/* Links between CUDA devices: one more stream on the GPU of each and, if NCCL is used, a communicator for each. */
#include "cuda/cuda_links.h"

#include "cuda/cuda.h"
#include "cuda/cuda_device.h"
#include "cuda/cuda_ranks.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(lk_links_id) == sizeof(lk_gpu_comm_id), "an id is handed over as bytes");
_Static_assert((int)LK_LINKS_ADDENDS == (int)LK_GPU_TREE_ADDENDS, "a sum is one launch");
_Static_assert((int)LK_LINKS_LEVELS == (int)LK_GPU_TREE_LEVELS, "a sum is one launch");

typedef struct cuda_links {
    const lk_gpu_driver *driver;
    int n;
    lk_device **devices; /* [n]; holds a reference to the memory of each, because links may outlive the devices */
    lk_cuda **streams;   /* [n] */
    const lk_gpu_nccl *nccl;
    lk_cuda_ranks *ranks; /* NULL: NCCL is not used */
} cuda_links;

static cuda_links *links_of(lk_device *links)
{
    return links->state;
}

lk_cuda *const *lk__cuda_streams_of(lk_device *device, int *n)
{
    bool is_links = device->backend == lk__cuda_links.backend;
    *n = is_links ? links_of(device)->n : 1;
    return is_links ? links_of(device)->streams : (lk_cuda *const *)&device->state;
}

/* --- NCCL --------------------------------------------------------------------------------------------------------- */

/* The first version with NCCL_MULTI_RANK_GPU_ENABLE, which allows several ranks on one GPU. */
enum { NCCL_SHARES_GPUS = 23000 };

static const lk_gpu_nccl *cuda_links_find_nccl(void)
{
    const lk_gpu_driver *driver = lk__cuda_driver(NULL);
    return driver ? driver->nccl() : NULL;
}

static void cuda_links_write_nccl_version(char *text, size_t size, int version)
{
    snprintf(text, size, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static bool cuda_links_nccl_shares_devices(void)
{
    const lk_gpu_nccl *nccl = cuda_links_find_nccl();
    return nccl && nccl->version >= NCCL_SHARES_GPUS;
}

static lk_status links_check_library(lk_device *const *devices, int n)
{
    const lk_gpu_nccl *nccl = cuda_links_find_nccl();
    char version[32];
    if (!nccl)
        LK_FAIL(LK_ERR_UNSUPPORTED, "the CUDA plug-in has no NCCL: it was built without it");
    cuda_links_write_nccl_version(version, sizeof version, nccl->version);
    for (int i = 0; i < n && !cuda_links_nccl_shares_devices(); i++)
        for (int j = 0; j < i; j++)
            if (devices[i]->index == devices[j]->index)
                LK_FAIL(LK_ERR_UNSUPPORTED, "%s is several devices, and %s takes a GPU once; 2.30 and later share it",
                        devices[i]->name, version);
    return LK_OK;
}

static void cuda_links_nccl_describe(char *text, size_t size)
{
    const lk_gpu_nccl *nccl = cuda_links_find_nccl();
    *text = '\0';
    if (nccl)
        cuda_links_write_nccl_version(text, size, nccl->version);
}

static lk_status links_new_id(lk_links_id *id)
{
    LK_TRY(links_check_library(NULL, 0));
    lk_gpu_comm_id made;
    LK_TRY(lk__cuda_check(lk__cuda_driver(NULL), cuda_links_find_nccl()->new_id(&made)));
    memcpy(id, &made, sizeof made);
    return LK_OK;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void links_free(cuda_links *l)
{
    lk__cuda_ranks_free(l->ranks);
    for (int i = 0; i < l->n; i++) {
        lk__cuda_stream_free(l->streams[i]);
        lk__device_release_memory(l->devices[i]);
    }
    lk__free(l->streams);
    lk__free(l->devices);
    lk__free(l);
}

static lk_status links_open_streams(cuda_links *l, const lk_links_opts *opts)
{
    l->devices = lk__calloc((size_t)opts->n, sizeof(lk_device *));
    l->streams = lk__calloc((size_t)opts->n, sizeof(lk_cuda *));
    if (!l->devices || !l->streams)
        return LK_ERR_MEMORY;
    for (int i = 0; i < opts->n; i++) {
        l->devices[i] = opts->devices[i];
        lk__device_retain_memory(l->devices[i]);
    }
    l->n = opts->n;
    for (int i = 0; i < l->n; i++)
        LK_TRY(lk__cuda_stream_new(l->driver, opts->devices[i]->index, opts->devices[i]->state, &l->streams[i]));
    if (!opts->has_communicator)
        return LK_OK;
    l->nccl = cuda_links_find_nccl();
    return lk__cuda_ranks_new(l->nccl, opts, l->streams, &l->ranks);
}

static lk_status links_open(lk_device *device, void **state)
{
    cuda_links *l = lk__calloc(1, sizeof *l);
    if (!l)
        return LK_ERR_MEMORY;
    l->driver = lk__cuda_driver(NULL);
    lk_status status = links_open_streams(l, device->linked);
    if (status == LK_OK)
        *state = l;
    else
        links_free(l);
    return status;
}

static void links_close(lk_device *device, void *state)
{
    (void)device;
    links_free(state);
}

static int links_available(void)
{
    return 0;
}

/* The backend of the links' queue. It cannot be opened by name, and runs no operators. */
static const lk_kernel_table *const no_tables[] = {NULL};
static const lk_backend backend = {
    .kind = "cuda links",
    .tables = no_tables,
    .available = links_available,
    .open = links_open,
    .close = links_close,
    .alloc = lk__cuda_alloc,
    .free = lk__cuda_free,
    .offload = &lk__cuda_offload,
};

/* --- work --------------------------------------------------------------------------------------------------------- */

static lk_status links_pack(lk_device *device, const lk_links_copy *copies, int n)
{
    lk_cuda *cuda = device->state;
    for (int begin = 0; begin < n; begin += LK_GPU_COPIES) {
        lk_gpu_copies some = {.n = n - begin < LK_GPU_COPIES ? n - begin : LK_GPU_COPIES};
        for (int i = 0; i < some.n; i++) {
            some.from[i] = copies[begin + i].from;
            some.to[i] = copies[begin + i].to;
            some.count[i] = copies[begin + i].count;
        }
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->copies(cuda->stream, &some)));
    }
    return LK_OK;
}

static lk_status links_copy(lk_device *links, int to, float *y, int from, const float *x, int64_t count)
{
    const cuda_links *l = links_of(links);
    return lk__cuda_check(l->driver, l->driver->copy_peer(l->streams[to]->trunk, y, l->streams[from]->trunk, x,
                                                          (size_t)count * sizeof *x));
}

static lk_status links_sum(lk_device *links, int on, const lk_links_sum *s)
{
    const cuda_links *l = links_of(links);
    lk_gpu_tree_sum arguments = {.n_addends = s->n_addends, .y = s->y, .dtype = s->dtype, .count = s->count};
    memcpy(arguments.addends, s->addends, sizeof arguments.addends);
    memcpy(arguments.additions, s->additions, sizeof arguments.additions);
    LK_TRY(lk__cuda_check(l->driver, l->driver->stream_use(l->streams[on]->trunk)));
    return lk__cuda_check(l->driver, l->driver->tree_sum(l->streams[on]->trunk, &arguments));
}

static lk_status links_clear(lk_device *links, int on, float *y, int64_t count)
{
    const cuda_links *l = links_of(links);
    lk_gpu_fill arguments = {.y = y, .dtype = LK_F32, .count = count};
    LK_TRY(lk__cuda_check(l->driver, l->driver->stream_use(l->streams[on]->trunk)));
    return lk__cuda_check(l->driver, l->driver->fill(l->streams[on]->trunk, &arguments));
}

static lk_status links_join(lk_device *links)
{
    const cuda_links *l = links_of(links);
    const lk_gpu_driver *driver = l->driver;
    for (int i = 0; i < l->n; i++)
        LK_TRY(lk__cuda_check(driver, driver->event_record(l->streams[i]->trunk, l->streams[i]->followed)));
    for (int i = 0; i < l->n; i++)
        for (int j = 0; j < l->n; j++)
            if (i != j)
                LK_TRY(lk__cuda_check(driver, driver->event_follow(l->streams[i]->trunk, l->streams[j]->followed)));
    return LK_OK;
}

static lk_status links_group_begin(lk_device *links)
{
    return lk__cuda_ranks_begin(links_of(links)->ranks);
}

static lk_status links_group_end(lk_device *links)
{
    return lk__cuda_ranks_end(links_of(links)->ranks);
}

static lk_gpu_comm *cuda_links_comm_of(const cuda_links *l, int on)
{
    return lk__cuda_ranks_comm(l->ranks, on);
}

static lk_status links_send(lk_device *links, int on, const float *x, int64_t count, int to)
{
    const cuda_links *l = links_of(links);
    return lk__cuda_check(l->driver, l->nccl->send(cuda_links_comm_of(l, on), x, count, to));
}

static lk_status links_receive(lk_device *links, int on, float *x, int64_t count, int from)
{
    const cuda_links *l = links_of(links);
    return lk__cuda_check(l->driver, l->nccl->receive(cuda_links_comm_of(l, on), x, count, from));
}

static lk_status links_all_gather(lk_device *links, int on, const float *x, float *y, int64_t count)
{
    const cuda_links *l = links_of(links);
    return lk__cuda_check(l->driver, l->nccl->all_gather(cuda_links_comm_of(l, on), x, y, count));
}

static lk_status links_all_reduce(lk_device *links, int on, float *x, int64_t count)
{
    const cuda_links *l = links_of(links);
    return lk__cuda_check(l->driver, l->nccl->all_reduce(cuda_links_comm_of(l, on), x, count));
}

const lk_links_table lk__cuda_links = {
    .backend = &backend,
    .dtypes = LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64),
    .check_library = links_check_library,
    .describe_library = cuda_links_nccl_describe,
    .shares_devices = cuda_links_nccl_shares_devices,
    .new_id = links_new_id,
    .pack = links_pack,
    .copy = links_copy,
    .sum = links_sum,
    .clear = links_clear,
    .join = links_join,
    .group_begin = links_group_begin,
    .group_end = links_group_end,
    .send = links_send,
    .receive = links_receive,
    .all_gather = links_all_gather,
    .all_reduce = links_all_reduce,
};
