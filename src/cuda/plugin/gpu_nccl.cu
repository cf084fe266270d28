/* Implements lk_gpu_nccl. The only file that includes NCCL. */
#include "cuda/plugin/gpu_current.cuh"

#include <cstdlib>
#include <cstring>
#include <nccl.h>

static_assert(sizeof(lk_gpu_comm_id) == sizeof(ncclUniqueId), "an id is handed over as bytes");

struct lk_gpu_comm {
    ncclComm_t comm; /* NULL until its group has ended, and after it was aborted */
    lk_gpu_stream *stream;
    bool is_finalized; /* or is finalizing */
};

/* Translates a result of NCCL; the message includes NCCL's own last error, if there is one. */
static lk_gpu_status nccl_check(ncclResult_t result, const char *what)
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

static lk_gpu_status nccl_new_id(lk_gpu_comm_id *id)
{
    ncclUniqueId unique;
    LK_GPU_TRY(nccl_check(ncclGetUniqueId(&unique), "name a communicator"));
    memcpy(id->bytes, &unique, sizeof unique);
    return LK_GPU_OK;
}

static lk_gpu_status nccl_group_begin(void)
{
    return nccl_check(ncclGroupStart(), "begin a group");
}

static lk_gpu_status nccl_group_end(void)
{
    return nccl_check(ncclGroupEnd(), "exchange between GPUs");
}

/* Checks a call in a group, for which "in progress" is a success: the group's end reports whether it is done. */
static lk_gpu_status nccl_check_started(ncclResult_t result, const char *what)
{
    return nccl_check(result == ncclInProgress ? ncclSuccess : result, what);
}

static lk_gpu_status nccl_comm_new(const lk_gpu_comm_id *id, int rank, int ranks, bool waits, lk_gpu_stream *stream,
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
    *out = comm; /* NCCL writes to it until the group has ended */
    return nccl_check_started(ncclCommInitRankConfig(&comm->comm, ranks, unique, rank, &config), "connect GPUs");
}

static lk_gpu_status nccl_comm_finalize(lk_gpu_comm *comm)
{
    lk__gpu_need(comm->stream->gpu);
    comm->is_finalized = true;
    return nccl_check_started(ncclCommFinalize(comm->comm), "let go of other GPUs");
}

/* ncclCommDestroy alone would also finalize, and wait indefinitely for the other ranks of this machine ("an intra-node
 * collective call", says NCCL's manual). After ncclCommFinalize has succeeded it is local. */
static void nccl_comm_free(lk_gpu_comm *comm)
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

static lk_gpu_status nccl_comm_check(lk_gpu_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    lk__gpu_need(comm->stream->gpu);
    LK_GPU_TRY(nccl_check(ncclCommGetAsyncError(comm->comm, &state), "look for errors"));
    return nccl_check(state, "exchange between GPUs");
}

static void nccl_comm_abort(lk_gpu_comm *comm)
{
    gpu_scope scope(comm->stream->gpu);
    if (comm->comm)
        ncclCommAbort(comm->comm);
    comm->comm = nullptr;
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

/* The stream of a communicator. At the end of a group NCCL restores the thread's current GPU, so there must be one. */
static cudaStream_t stream_of(lk_gpu_comm *comm)
{
    lk__gpu_need(comm->stream->gpu);
    return comm->stream->stream;
}

static lk_gpu_status nccl_send(lk_gpu_comm *comm, const float *x, int64_t count, int to)
{
    return nccl_check_started(ncclSend(x, (size_t)count, ncclFloat, to, comm->comm, stream_of(comm)),
                              "send to another GPU");
}

static lk_gpu_status nccl_receive(lk_gpu_comm *comm, float *x, int64_t count, int from)
{
    return nccl_check_started(ncclRecv(x, (size_t)count, ncclFloat, from, comm->comm, stream_of(comm)),
                              "receive from another GPU");
}

static lk_gpu_status nccl_all_gather(lk_gpu_comm *comm, const float *x, float *y, int64_t count)
{
    return nccl_check_started(ncclAllGather(x, y, (size_t)count, ncclFloat, comm->comm, stream_of(comm)), "gather");
}

static lk_gpu_status nccl_all_reduce(lk_gpu_comm *comm, float *x, int64_t count)
{
    return nccl_check_started(ncclAllReduce(x, x, (size_t)count, ncclFloat, ncclSum, comm->comm, stream_of(comm)),
                              "reduce");
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* From version 2.30 on ranks may share a GPU, if the variable is set before NCCL is first used. */
static lk_gpu_nccl open_table(void)
{
    enum { SHARES_GPUS = 23000 };
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess)
        version = 0;
    if (version >= SHARES_GPUS)
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return {version,        nccl_new_id,     nccl_group_begin, nccl_group_end, nccl_comm_new, nccl_comm_finalize,
            nccl_comm_free, nccl_comm_check, nccl_comm_abort,  nccl_send,      nccl_receive,  nccl_all_gather,
            nccl_all_reduce};
}

const lk_gpu_nccl *lk__gpu_nccl(void)
{
    static const lk_gpu_nccl table = open_table();
    return table.version ? &table : nullptr;
}
