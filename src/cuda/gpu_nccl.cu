/* NCCL behind driver.h. */
#include "cuda/gpu_current.cuh"

#include <cstdlib>
#include <cstring>
#include <nccl.h>

static_assert(sizeof(lk_gpu_comm_id) == sizeof(ncclUniqueId), "an id is handed over as bytes");

struct lk_gpu_comm {
    ncclComm_t comm; /* NULL until its group has ended, and after it was aborted */
    lk_gpu_stream *stream;
    bool is_finalized; /* or is finalizing */
};

/* What an error of the library's means: where it says more about itself, that too. */
static lk_gpu_status check(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return LK_GPU_OK;
    if (result == ncclInProgress)
        return LK_GPU_BUSY;
    lk_gpu_status status = result == ncclInvalidUsage ? LK_GPU_UNSUPPORTED : LK_GPU_FAILED;
    const char *more = ncclGetLastError(nullptr);
    bool says_more = more && *more;
    return lk__gpu_fail(status, "NCCL: %s: %s%s%s", what, ncclGetErrorString(result), says_more ? ": " : "",
                        says_more ? more : "");
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

static lk_gpu_status new_id(lk_gpu_comm_id *id)
{
    ncclUniqueId unique;
    LK_GPU_TRY(check(ncclGetUniqueId(&unique), "name a communicator"));
    memcpy(id->bytes, &unique, sizeof unique);
    return LK_GPU_OK;
}

static lk_gpu_status group_begin(void)
{
    return check(ncclGroupStart(), "begin a group");
}

static lk_gpu_status group_end(void)
{
    return check(ncclGroupEnd(), "exchange between GPUs");
}

/* Of what is asked for in a group: whether it is done is told at the group's end. */
static lk_gpu_status asked(ncclResult_t result, const char *what)
{
    return check(result == ncclInProgress ? ncclSuccess : result, what);
}

static lk_gpu_status comm_new(const lk_gpu_comm_id *id, int rank, int ranks, bool waits, lk_gpu_stream *stream,
                              lk_gpu_comm **out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    config.blocking = waits;
    memcpy(&unique, id->bytes, sizeof unique);
    LK_GPU_TRY(lk__gpu_use(stream->gpu));
    lk_gpu_comm *comm = (lk_gpu_comm *)calloc(1, sizeof *comm);
    if (!comm)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory for a communicator");
    comm->stream = stream;
    *out = comm; /* the library writes to it until the group has ended */
    return asked(ncclCommInitRankConfig(&comm->comm, ranks, unique, rank, &config), "connect GPUs");
}

static lk_gpu_status comm_finalize(lk_gpu_comm *comm)
{
    lk__gpu_need(comm->stream->gpu);
    comm->is_finalized = true;
    return asked(ncclCommFinalize(comm->comm), "let go of other GPUs");
}

/* ncclCommDestroy alone finalizes too, and would wait for the ranks of this machine as long as they take ("an
 * intra-node collective call", as NCCL's manual says); after ncclCommFinalize has succeeded it is a local matter. */
static void comm_free(lk_gpu_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    if (!comm)
        return;
    gpu_scope scope(comm->stream->gpu);
    bool has_left = comm->comm && comm->is_finalized && ncclCommGetAsyncError(comm->comm, &state) == ncclSuccess &&
                    state == ncclSuccess;
    if (has_left)
        ncclCommDestroy(comm->comm);
    else if (comm->comm)
        ncclCommAbort(comm->comm);
    free(comm);
}

static lk_gpu_status comm_check(lk_gpu_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    lk__gpu_need(comm->stream->gpu);
    LK_GPU_TRY(check(ncclCommGetAsyncError(comm->comm, &state), "look for errors"));
    return check(state, "exchange between GPUs");
}

static void comm_abort(lk_gpu_comm *comm)
{
    gpu_scope scope(comm->stream->gpu);
    if (comm->comm)
        ncclCommAbort(comm->comm);
    comm->comm = nullptr;
}

/* --- what ranks do together --------------------------------------------------------------------------------------- */

/* At the end of the group the library gives the thread back the GPU that it used: there has to be one. */
static cudaStream_t stream_of(lk_gpu_comm *comm)
{
    lk__gpu_need(comm->stream->gpu);
    return comm->stream->stream;
}

static lk_gpu_status send(lk_gpu_comm *comm, const float *x, int64_t count, int to)
{
    return asked(ncclSend(x, (size_t)count, ncclFloat, to, comm->comm, stream_of(comm)), "send to another GPU");
}

static lk_gpu_status receive(lk_gpu_comm *comm, float *x, int64_t count, int from)
{
    return asked(ncclRecv(x, (size_t)count, ncclFloat, from, comm->comm, stream_of(comm)), "receive from another GPU");
}

static lk_gpu_status all_gather(lk_gpu_comm *comm, const float *x, float *y, int64_t count)
{
    return asked(ncclAllGather(x, y, (size_t)count, ncclFloat, comm->comm, stream_of(comm)), "gather");
}

static lk_gpu_status all_reduce(lk_gpu_comm *comm, float *x, int64_t count)
{
    return asked(ncclAllReduce(x, x, (size_t)count, ncclFloat, ncclSum, comm->comm, stream_of(comm)), "reduce");
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* From 2.30 on ranks may share a GPU, if that was said before the library is used first. */
static lk_gpu_nccl open_table(void)
{
    enum { SHARES_GPUS = 23000 };
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess)
        version = 0;
    if (version >= SHARES_GPUS)
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return {version,    new_id,     group_begin, group_end, comm_new,   comm_finalize, comm_free,
            comm_check, comm_abort, send,        receive,   all_gather, all_reduce};
}

const lk_gpu_nccl *lk__gpu_nccl(void)
{
    static const lk_gpu_nccl table = open_table();
    return table.version ? &table : nullptr;
}
