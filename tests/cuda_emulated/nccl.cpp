/* An emulation of NCCL. The ranks of a process meet twice. On the host they meet at the end of a group: the first ones
 * wait for the others, as NCCL may, or, with a communicator that does not block, poll until they are there. Then they
 * meet in their streams: the last rank queues one task on all of them, which runs when every stream has reached it, and
 * moves the data of all ranks. Every rank of a communicator takes part in each of its groups.
 *
 * If there are ranks in other processes, the streams first reach a task that sends these what the local ranks send and
 * ask for, and then stop until the others have sent theirs: see nccl_wire.h. A stream runs nothing before a thread
 * waits for it, so a message from another process counts as a wait. */
#include "nccl.h"
#include "nccl_parts.h"
#include "nccl_wire.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

/* Shared by the local ranks of a communicator. */
struct world {
    std::string name;
    int ranks, arrived = 0, handles = 0, finalized = 0;
    int round = 0;
    std::atomic<bool> is_aborted{false};
    ncclResult_t error = ncclSuccess; /* reported to the ranks */
    std::map<int, int> gpus;          /* of the local ranks */
    std::map<int, cudaStream_t> streams;
    requests asked;                            /* in the group that is being ended */
    std::unique_ptr<process_link> link;        /* NULL: all ranks are local */
    std::map<int, std::function<bool()>> told; /* by group: runs the streams up to the task that sends their part */
};

struct emulated_comm {
    std::shared_ptr<world> all;
    int rank;
    bool blocks;
    int rounds; /* groups in which it took part */
    bool is_finalized;
};

/* Never destroyed: threads of links may still run when static objects are. */
static std::mutex &lock = *new std::mutex;
static std::condition_variable &changed = *new std::condition_variable;
static std::map<std::string, std::shared_ptr<world>> &worlds = *new std::map<std::string, std::shared_ptr<world>>;
static int groups;
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
static thread_local std::vector<emulated_comm *> taking_part, to_finalize;

static ncclResult_t failed(ncclResult_t result, const std::string &why)
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

/* --- communicators ------------------------------------------------------------------------------------------------ */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::string name = hub_open();
    *id = {};
    snprintf(id->internal, sizeof id->internal, "%s", name.c_str());
    return name.empty() ? failed(ncclSystemError, "no socket") : ncclSuccess;
}

/* The caller holds `lock`, which is released while waiting. Polls, because other processes do not notify. Gives up
 * after a minute, so that a test does not hang if a rank never comes. */
template <typename Condition> static ncclResult_t wait_until(std::unique_lock<std::mutex> &guard, Condition is_so)
{
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_so()) {
        if (std::chrono::steady_clock::now() > end)
            return failed(ncclSystemError, "a rank does not come");
        changed.wait_for(guard, std::chrono::milliseconds(1));
    }
    return ncclSuccess;
}

static bool are_all_here(const world *all)
{
    return (int)all->gpus.size() == all->ranks || (all->link && all->link->is_complete());
}

static bool are_all_final(const world *all)
{
    return all->finalized == all->ranks || (all->link && all->link->is_final());
}

/* The error of a communicator, which ranks get when they check. */
static ncclResult_t error_of(const world *all)
{
    std::string why;
    ncclResult_t result = all->error;
    if (result == ncclSuccess && all->link)
        result = all->link->error(&why);
    if (!why.empty())
        last_error = why;
    return result;
}

/* Called by the thread of the link, without a lock. */
static bool run_to(const std::string &name, int group)
{
    std::function<bool()> run;
    {
        std::lock_guard<std::mutex> guard(lock);
        auto found = worlds.find(name);
        if (found != worlds.end() && found->second->told.count(group))
            run = found->second->told[group];
    }
    return run && run();
}

static ncclResult_t join_world(const joining &j, std::shared_ptr<world> *out)
{
    std::string name(j.id.internal, strnlen(j.id.internal, sizeof j.id.internal));
    std::shared_ptr<world> &all = worlds[name];
    if (!all) {
        all = std::make_shared<world>();
        all->name = name;
        all->ranks = j.ranks;
    }
    for (const auto &other : all->gpus)
        if (other.second == j.gpu && version() < 23000)
            return failed(ncclInvalidUsage, "Duplicate GPU detected");
    if (j.rank < 0 || j.rank >= j.ranks || j.ranks != all->ranks || all->gpus.count(j.rank))
        return failed(ncclInvalidArgument, "ranks do not agree");
    all->gpus[j.rank] = j.gpu;
    *out = all;
    return ncclSuccess;
}

/* Tells the other processes, if there are any, which ranks this thread has added. */
static void introduce(const std::vector<std::shared_ptr<world>> &joined)
{
    for (size_t i = 0; i < joined.size(); i++) {
        world *all = joined[i].get();
        if (!all->link && (int)all->gpus.size() == all->ranks) {
            hub_cancel(all->name);
            continue;
        }
        if (!all->link)
            all->link.reset(new process_link(all->name, [name = all->name](int group) { return run_to(name, group); }));
        all->link->join(to_join[i].rank, {to_join[i].ranks, to_join[i].gpu, version() >= 23000});
    }
}

static ncclResult_t join_all(void)
{
    std::unique_lock<std::mutex> guard(lock);
    std::vector<std::shared_ptr<world>> joined(to_join.size());
    for (size_t i = 0; i < to_join.size(); i++)
        if (join_world(to_join[i], &joined[i]) != ncclSuccess)
            return group_result;
    introduce(joined);
    changed.notify_all();
    for (size_t i = 0; i < to_join.size(); i++) {
        world *all = joined[i].get();
        bool blocks = to_join[i].blocks;
        if (blocks && wait_until(guard, [all] { return are_all_here(all); }) != ncclSuccess)
            return group_result;
        *to_join[i].comm = new emulated_comm{joined[i], to_join[i].rank, blocks, 0, false};
        all->handles++;
        if (!blocks)
            group_result = ncclInProgress;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    int device = 0;
    cudaGetDevice(&device);
    ncclGroupStart();
    to_join.push_back({comm, id, rank, ranks, emulated_gpu(device), config->blocking != 0});
    return ncclGroupEnd();
}

/* The last local rank closes the connection, without the lock, because its thread may be calling `run_to`. */
static void let_go(ncclComm_t comm)
{
    std::shared_ptr<world> all = comm->all;
    bool is_last;
    {
        std::lock_guard<std::mutex> guard(lock);
        is_last = --all->handles == 0;
        if (is_last)
            worlds.erase(all->name);
    }
    if (is_last && all->link)
        all->link->leave();
    delete comm;
}

/* NCCL would finalize here by itself, and might wait for other ranks. Its manual recommends to call ncclCommFinalize
 * first and to wait until that has succeeded; the emulation requires it. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    if (comm->is_finalized)
        ncclCommGetAsyncError(comm, &state);
    if (state != ncclSuccess) {
        fprintf(stderr, "emulated NCCL: rank %d is destroyed, and %s\n", comm->rank,
                comm->is_finalized ? "has not finalized yet" : "was not finalized");
        abort();
    }
    let_go(comm);
    return ncclSuccess;
}

/* Other ranks are not told: their work in flight stands still. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const char *allowed = getenv("LOCKSTEP_EMULATED_NCCL_ABORTS");
    if (allowed && strcmp(allowed, "no") == 0) {
        fprintf(stderr, "emulated NCCL: rank %d is aborted\n", comm->rank);
        abort();
    }
    comm->all->is_aborted = true;
    let_go(comm);
    return ncclSuccess;
}

static ncclResult_t finalize_all(void)
{
    std::unique_lock<std::mutex> guard(lock);
    for (emulated_comm *comm : to_finalize) {
        if (comm->is_finalized)
            return failed(ncclInvalidArgument, "a rank is finalized twice");
        comm->is_finalized = true;
        comm->all->finalized++;
        if (comm->all->link)
            comm->all->link->finalize(comm->rank);
    }
    changed.notify_all();
    for (emulated_comm *comm : to_finalize) {
        world *all = comm->all.get();
        if (!comm->blocks)
            group_result = ncclInProgress;
        else if (wait_until(guard, [all] { return are_all_final(all); }) != ncclSuccess)
            return group_result;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclGroupStart();
    to_finalize.push_back(comm);
    return ncclGroupEnd();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    std::lock_guard<std::mutex> guard(lock);
    const world *all = comm->all.get();
    bool is_done = are_all_here(all) && all->round >= comm->rounds && (!comm->is_finalized || are_all_final(all));
    *error = error_of(all);
    if (*error == ncclSuccess)
        *error = is_done ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static std::vector<cudaStream_t> streams_of(const world *all)
{
    std::vector<cudaStream_t> streams;
    for (const auto &s : all->streams)
        streams.push_back(s.second);
    return streams;
}

/* Work that is pushed to the first stream between gather_streams and release_streams runs when all streams have come to
 * it, and none goes on before it is done. */
static void gather_streams(const std::vector<cudaStream_t> &streams, cudaEvent_t event)
{
    for (cudaStream_t stream : streams) {
        emulated_record(event, stream);
        cudaStreamWaitEvent(streams[0], event);
    }
}

/* Counts an exchange in flight on each stream's device, until the first stream has run all that it has got so far. */
static void count_in_flight(const std::vector<cudaStream_t> &streams)
{
    std::vector<int> devices;
    for (cudaStream_t stream : streams)
        devices.push_back(emulated_device_of(stream));
    for (int device : devices)
        emulated_exchange_in_flight(device, 1);
    /* Not emulated_push: this is not a launch, and no injected error may hit it. */
    emulated_push_reachable(streams[0], [devices]() {
        for (int device : devices)
            emulated_exchange_in_flight(device, -1);
    });
}

static void release_streams(const std::vector<cudaStream_t> &streams, cudaEvent_t event)
{
    emulated_record(event, streams[0]);
    for (cudaStream_t stream : streams)
        cudaStreamWaitEvent(stream, event);
}

/* Queues a group in which other processes take part. */
static void push_parts(const std::shared_ptr<world> &all, cudaStream_t stream, const requests &asked)
{
    enum { MOST_IN_FLIGHT = 1000 };
    int group = all->round;
    all->told[group] =
        emulated_push_reachable(stream, [all, group, asked]() { all->link->publish(group, pack_part(asked)); });
    all->told.erase(all->told.begin(), all->told.lower_bound(group - MOST_IN_FLIGHT));
    auto have_all_come = [all, group, here = (int)asked.size()]() {
        return here + all->link->ranks_told(group) == all->ranks || all->is_aborted;
    };
    emulated_push_held(stream, have_all_come, [all, group, asked]() {
        requests whole = asked;
        std::vector<std::string> parts = all->link->take_parts(group);
        for (const std::string &part : parts)
            unpack_part(part, &whole);
        if (!all->is_aborted)
            carry_out(whole);
    });
}

static void start(const std::shared_ptr<world> &all, bool stands_still)
{
    std::vector<cudaStream_t> streams = streams_of(all.get());
    requests asked;
    cudaEvent_t event;
    asked.swap(all->asked);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    gather_streams(streams, event);
    if (stands_still)
        emulated_push_held(
            streams[0], [all]() { return all->is_aborted.load(); }, []() {});
    else if (all->link)
        push_parts(all, streams[0], asked);
    else
        emulated_push(streams[0], [asked]() { carry_out(asked); });
    count_in_flight(streams);
    release_streams(streams, event);
    cudaEventDestroy(event);
}

static ncclResult_t exchange(bool stands_still, bool breaks)
{
    std::unique_lock<std::mutex> guard(lock);
    std::vector<std::pair<world *, int>> rounds;
    for (emulated_comm *comm : taking_part) {
        world *all = comm->all.get();
        if (error_of(all) != ncclSuccess)
            return failed(error_of(all), last_error);
        comm->rounds++;
        if (comm->blocks)
            rounds.push_back({all, all->round});
        else
            group_result = ncclInProgress;
        if (++all->arrived < (int)all->gpus.size())
            continue;
        start(comm->all, stands_still || breaks);
        all->error = breaks ? ncclRemoteError : ncclSuccess;
        all->arrived = 0;
        all->round++;
        changed.notify_all();
    }
    for (const std::pair<world *, int> &r : rounds)
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

/* NCCL makes the ranks' GPUs current in turn, and then the thread's again, even if the thread has chosen none. */
static void restore_device(void)
{
    int device = 0;
    cudaGetDevice(&device);
    cudaSetDevice(device);
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
    if (!taking_part.empty()) /* gives other threads time to interfere */
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (group_result == ncclSuccess && !taking_part.empty())
        exchange(is_the_one("LOCKSTEP_EMULATED_NCCL_STALLS", group),
                 is_the_one("LOCKSTEP_EMULATED_NCCL_BREAKS", group));
    if (group_result == ncclSuccess && !to_finalize.empty())
        finalize_all();
    for (emulated_comm *comm : taking_part)
        emulated_exchange_starts(emulated_device_of(comm->all->streams[comm->rank]), -1);
    if (!to_join.empty() || !taking_part.empty() || !to_finalize.empty())
        restore_device();
    to_join.clear();
    taking_part.clear();
    to_finalize.clear();
    return group_result;
}

static ncclResult_t ask(ncclComm_t comm, cudaStream_t stream, const operation &o)
{
    ncclGroupStart();
    {
        std::lock_guard<std::mutex> guard(lock);
        comm->all->streams[comm->rank] = stream;
        comm->all->asked[comm->rank].push_back(o);
    }
    if (std::find(taking_part.begin(), taking_part.end(), comm) == taking_part.end()) {
        emulated_exchange_starts(emulated_device_of(stream), 1);
        taking_part.push_back(comm);
    }
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
