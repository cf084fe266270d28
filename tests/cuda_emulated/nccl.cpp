/* Ranks meet twice. On the host, at the end of a group: whoever comes first waits for the others, as the library may,
 * or, with a communicator that does not block, asks again until they are there. Then in their streams: the last to come
 * gives all of them one task, which runs when every stream has come that far and moves what the ranks have asked for.
 * Every rank of a communicator takes part in each of its groups. */
#include "nccl.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct operation {
    enum { SEND, RECEIVE, GATHER, REDUCE } kind;
    const float *x;
    float *y;
    size_t count;
    int peer;
};

/* What all ranks of a communicator share. */
struct world {
    int ranks, joined = 0, arrived = 0;
    uint64_t round = 0;
    std::atomic<bool> is_aborted{false};
    ncclResult_t error = ncclSuccess; /* which ranks are told of */
    std::vector<int> gpus;
    std::vector<cudaStream_t> streams;
    std::vector<std::vector<operation>> asked; /* by each rank, in the group that it ends */
};

struct emulated_comm {
    std::shared_ptr<world> all;
    int rank;
    bool blocks;
    uint64_t rounds; /* that it has taken part in */
};

static std::mutex lock;
static std::condition_variable changed;
static std::map<std::string, std::shared_ptr<world>> worlds;
static int ids, groups;
static thread_local int nesting;
static thread_local ncclResult_t group_result;
static thread_local std::string last_error;

struct joining {
    ncclComm_t *comm;
    ncclUniqueId id;
    int rank, ranks, gpu;
    bool blocks;
};
static thread_local std::vector<joining> to_join;
static thread_local std::vector<emulated_comm *> taking_part;

static ncclResult_t failed(ncclResult_t result, const char *why)
{
    last_error = why;
    return group_result = result;
}

/* --- the library -------------------------------------------------------------------------------------------------- */

static int version(void)
{
    const char *text = getenv("LOCKSTEP_EMULATED_NCCL");
    return text && *text ? atoi(text) : 22809;
}

ncclResult_t ncclGetVersion(int *found)
{
    *found = version();
    return *found ? ncclSuccess : ncclSystemError;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess              ? "no error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error"
           : result == ncclSystemError        ? "unhandled system error"
           : result == ncclInvalidArgument    ? "invalid argument"
           : result == ncclRemoteError        ? "remote process exited or there was a network error"
                                              : "invalid usage";
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error.c_str();
}

/* --- meeting ------------------------------------------------------------------------------------------------------ */

static std::string key_of(const ncclUniqueId &id)
{
    return std::string(id.internal, sizeof id.internal);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::lock_guard<std::mutex> guard(lock);
    *id = {};
    snprintf(id->internal, sizeof id->internal, "emulated communicator %d", ++ids);
    return ncclSuccess;
}

/* Until `is_so`; where a rank never comes, a test should not wait for ever. */
template <typename Condition> static ncclResult_t wait_until(std::unique_lock<std::mutex> &guard, Condition is_so)
{
    return changed.wait_for(guard, std::chrono::seconds(60), is_so) ? ncclSuccess
                                                                    : failed(ncclSystemError, "a rank does not come");
}

static ncclResult_t join_world(const joining &j, std::shared_ptr<world> *out)
{
    std::shared_ptr<world> &all = worlds[key_of(j.id)];
    if (!all) {
        all = std::make_shared<world>();
        all->ranks = j.ranks;
        all->streams.resize((size_t)j.ranks);
        all->asked.resize((size_t)j.ranks);
    }
    for (int gpu : all->gpus)
        if (gpu == j.gpu && version() < 23000)
            return failed(ncclInvalidUsage, "Duplicate GPU detected");
    if (j.rank < 0 || j.rank >= j.ranks || j.ranks != all->ranks || all->joined == all->ranks)
        return failed(ncclInvalidArgument, "ranks do not agree");
    all->gpus.push_back(j.gpu);
    all->joined++;
    *out = all;
    return ncclSuccess;
}

static ncclResult_t join_all(void)
{
    std::unique_lock<std::mutex> guard(lock);
    std::vector<std::shared_ptr<world>> joined(to_join.size());
    for (size_t i = 0; i < to_join.size(); i++)
        if (join_world(to_join[i], &joined[i]) != ncclSuccess)
            return group_result;
    changed.notify_all();
    for (size_t i = 0; i < to_join.size(); i++) {
        world *all = joined[i].get();
        bool blocks = to_join[i].blocks;
        if (blocks && wait_until(guard, [all] { return all->joined == all->ranks; }) != ncclSuccess)
            return group_result;
        *to_join[i].comm = new emulated_comm{joined[i], to_join[i].rank, blocks, 0};
        if (!blocks)
            group_result = ncclInProgress;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    int gpu = 0;
    cudaGetDevice(&gpu);
    ncclGroupStart();
    to_join.push_back({comm, id, rank, ranks, gpu, config->blocking != 0});
    return ncclGroupEnd();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->all->is_aborted = true;
    return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    std::lock_guard<std::mutex> guard(lock);
    const world *all = comm->all.get();
    bool is_there = all->joined == all->ranks && all->round >= comm->rounds;
    *error = all->error != ncclSuccess ? all->error : is_there ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

/* --- what ranks ask for ------------------------------------------------------------------------------------------- */

static void copy(float *to, const float *from, size_t count)
{
    if (to != from)
        memcpy(to, from, count * sizeof *to);
}

/* The k-th send from one rank to another is the k-th that this one receives from it. */
static void deliver(const std::vector<std::vector<operation>> &asked)
{
    std::map<std::pair<size_t, size_t>, std::deque<operation>> sent;
    for (size_t r = 0; r < asked.size(); r++)
        for (const operation &o : asked[r])
            if (o.kind == operation::SEND)
                sent[{r, (size_t)o.peer}].push_back(o);
    for (size_t r = 0; r < asked.size(); r++) {
        for (const operation &o : asked[r]) {
            if (o.kind != operation::RECEIVE)
                continue;
            std::deque<operation> &from = sent[{(size_t)o.peer, r}];
            if (from.empty() || from.front().count != o.count) {
                fprintf(stderr, "emulated NCCL: rank %zu receives what rank %d does not send\n", r, o.peer);
                abort();
            }
            copy(o.y, from.front().x, o.count);
            from.pop_front();
        }
    }
    for (const auto &left : sent) {
        if (left.second.empty())
            continue;
        fprintf(stderr, "emulated NCCL: nobody receives what rank %zu sends\n", left.first.first);
        abort();
    }
}

/* The i-th collective of each rank: all must ask for the same. */
static void collect(const std::vector<std::vector<operation>> &asked)
{
    for (size_t i = 0; i < asked[0].size(); i++) {
        const operation &first = asked[0][i];
        if (first.kind == operation::SEND || first.kind == operation::RECEIVE)
            continue;
        std::vector<float> sum(first.count);
        for (const std::vector<operation> &rank : asked) {
            if (i >= rank.size() || rank[i].kind != first.kind || rank[i].count != first.count) {
                fprintf(stderr, "emulated NCCL: ranks ask for different collectives\n");
                abort();
            }
            for (size_t e = 0; e < first.count; e++)
                sum[e] += rank[i].x[e];
        }
        for (const std::vector<operation> &to : asked) {
            if (first.kind == operation::REDUCE)
                copy(to[i].y, sum.data(), first.count);
            for (size_t r = 0; r < asked.size() && first.kind == operation::GATHER; r++)
                copy(to[i].y + r * first.count, asked[r][i].x, first.count);
        }
    }
}

/* Runs when all streams have come here, and none goes on before. */
static void push_to_all(const std::vector<cudaStream_t> &streams, std::function<bool()> may_run,
                        std::function<void()> work)
{
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (cudaStream_t stream : streams) {
        cudaEventRecord(event, stream);
        cudaStreamWaitEvent(streams[0], event);
    }
    if (may_run)
        emulated_push_held(streams[0], std::move(may_run), std::move(work));
    else
        emulated_push(streams[0], std::move(work));
    cudaEventRecord(event, streams[0]);
    for (cudaStream_t stream : streams)
        cudaStreamWaitEvent(stream, event);
    cudaEventDestroy(event);
}

static void start(const std::shared_ptr<world> &all, bool stands_still)
{
    std::vector<std::vector<operation>> asked(all->asked.size());
    asked.swap(all->asked);
    if (stands_still)
        push_to_all(
            all->streams, [all]() { return all->is_aborted.load(); }, []() {});
    else
        push_to_all(all->streams, nullptr, [asked]() {
            deliver(asked);
            collect(asked);
        });
}

static ncclResult_t exchange(bool stands_still, bool breaks)
{
    std::unique_lock<std::mutex> guard(lock);
    std::vector<std::pair<world *, uint64_t>> rounds;
    for (emulated_comm *comm : taking_part) {
        world *all = comm->all.get();
        comm->rounds++;
        if (comm->blocks)
            rounds.push_back({all, all->round});
        else
            group_result = ncclInProgress;
        if (++all->arrived < all->ranks)
            continue;
        start(comm->all, stands_still || breaks);
        all->error = breaks ? ncclRemoteError : ncclSuccess;
        all->arrived = 0;
        all->round++;
        changed.notify_all();
    }
    for (const std::pair<world *, uint64_t> &r : rounds)
        if (wait_until(guard, [&r] { return r.first->round > r.second; }) != ncclSuccess)
            return group_result;
    return ncclSuccess;
}

static bool is_the_one(const char *setting, int group)
{
    const char *which = getenv(setting);
    return group == (which ? atoi(which) : 0);
}

static int count_group(void)
{
    std::lock_guard<std::mutex> guard(lock);
    return ++groups;
}

ncclResult_t ncclGroupStart(void)
{
    if (nesting++ == 0)
        group_result = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--nesting > 0)
        return ncclSuccess;
    int group = group_result == ncclSuccess ? count_group() : 0;
    if (group_result == ncclSuccess && is_the_one("LOCKSTEP_EMULATED_NCCL_FAILS", group))
        failed(ncclUnhandledCudaError, "as it was asked to");
    if (group_result == ncclSuccess && !to_join.empty())
        join_all();
    if (group_result == ncclSuccess && !taking_part.empty())
        exchange(is_the_one("LOCKSTEP_EMULATED_NCCL_STALLS", group),
                 is_the_one("LOCKSTEP_EMULATED_NCCL_BREAKS", group));
    to_join.clear();
    taking_part.clear();
    return group_result;
}

static ncclResult_t ask(ncclComm_t comm, cudaStream_t stream, const operation &o)
{
    ncclGroupStart();
    {
        std::lock_guard<std::mutex> guard(lock);
        comm->all->streams[(size_t)comm->rank] = stream;
        comm->all->asked[(size_t)comm->rank].push_back(o);
    }
    bool is_new = true;
    for (emulated_comm *other : taking_part)
        is_new = is_new && other != comm;
    if (is_new)
        taking_part.push_back(comm);
    return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *x, size_t count, ncclDataType_t, int to, ncclComm_t comm, cudaStream_t stream)
{
    return ask(comm, stream, {operation::SEND, (const float *)x, nullptr, count, to});
}

ncclResult_t ncclRecv(void *x, size_t count, ncclDataType_t, int from, ncclComm_t comm, cudaStream_t stream)
{
    return ask(comm, stream, {operation::RECEIVE, nullptr, (float *)x, count, from});
}

ncclResult_t ncclAllGather(const void *x, void *y, size_t count, ncclDataType_t, ncclComm_t comm, cudaStream_t stream)
{
    return ask(comm, stream, {operation::GATHER, (const float *)x, (float *)y, count, 0});
}

ncclResult_t ncclAllReduce(const void *x, void *y, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream)
{
    return ask(comm, stream, {operation::REDUCE, (const float *)x, (float *)y, count, 0});
}
