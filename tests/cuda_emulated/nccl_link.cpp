#include "nccl_parts.h"
#include "nccl_wire.h"

#include <chrono>
#include <cstdlib>
#include <poll.h>
#include <unistd.h>

process_link::process_link(const std::string &name, std::function<bool(int)> run_to_) : run_to(std::move(run_to_))
{
    int socket = hub_connect(name);
    if (socket < 0 || pipe(waker) != 0) {
        result = ncclSystemError;
        reason = "nobody waits where the communicator's id says";
        return;
    }
    hub = std::make_unique<connection>(socket);
    thread = std::thread([this]() { run(); });
}

process_link::~process_link()
{
    leave();
}

/* The caller holds `lock`. */
void process_link::wake(void)
{
    char byte = 0;
    if (hub && write(waker[1], &byte, 1) < 0)
        abort();
}

static std::string bytes_of(const introduction &who)
{
    return std::string((const char *)&who, sizeof who);
}

void process_link::join(int rank, const introduction &who)
{
    std::lock_guard<std::mutex> guard(lock);
    if (hub)
        hub->put({tells::JOINS, rank, bytes_of(who)});
    wake();
}

void process_link::publish(int group, std::string part)
{
    std::lock_guard<std::mutex> guard(lock);
    wanted[group] = true;
    if (hub)
        hub->put({tells::PART, group, std::move(part)});
    wake();
}

void process_link::finalize(int rank)
{
    std::lock_guard<std::mutex> guard(lock);
    if (hub)
        hub->put({tells::FINALIZES, rank, ""});
    wake();
}

void process_link::leave(void)
{
    {
        std::lock_guard<std::mutex> guard(lock);
        if (!hub || is_leaving)
            return;
        is_leaving = true;
        hub->put({tells::LEAVES, 0, ""});
        wake();
    }
    thread.join();
    std::lock_guard<std::mutex> guard(lock);
    hub.reset();
    close(waker[0]);
    close(waker[1]);
}

bool process_link::is_complete(void)
{
    std::lock_guard<std::mutex> guard(lock);
    return complete;
}

bool process_link::is_final(void)
{
    std::lock_guard<std::mutex> guard(lock);
    return final;
}

ncclResult_t process_link::error(std::string *why)
{
    std::lock_guard<std::mutex> guard(lock);
    *why = reason;
    return result;
}

int process_link::ranks_told(int group)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = ranks.find(group);
    return found == ranks.end() ? 0 : found->second;
}

std::vector<std::string> process_link::take_parts(int group)
{
    std::lock_guard<std::mutex> guard(lock);
    std::vector<std::string> taken = std::move(parts[group]);
    parts.erase(group);
    ranks.erase(group);
    wanted.erase(group);
    return taken;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Keeps the first reason. */
void process_link::break_off(ncclResult_t because, const std::string &why)
{
    if (result != ncclSuccess)
        return;
    result = because;
    reason = why;
}

void process_link::hear(frame &f)
{
    switch (f.what) {
    case tells::PART: {
        requests told;
        ranks[f.number] += unpack_part(f.body, &told);
        parts[f.number].push_back(std::move(f.body));
        wanted.emplace(f.number, false);
        break;
    }
    case tells::ALL_HERE:
        complete = true;
        break;
    case tells::ALL_FINAL:
        final = true;
        break;
    case tells::REFUSED:
        break_off((ncclResult_t)f.number, f.body);
        break;
    default:
        break_off(ncclRemoteError, f.body);
    }
}

void process_link::look_for(int timeout_ms)
{
    pollfd ends[] = {{hub->socket, POLLIN, 0}, {waker[0], POLLIN, 0}};
    {
        std::lock_guard<std::mutex> guard(lock);
        ends[0].events |= hub->has_output() ? POLLOUT : 0;
    }
    poll(ends, 2, timeout_ms);
    char bytes[64];
    if (ends[1].revents && read(waker[0], bytes, sizeof bytes) < 0)
        abort();
}

/* Calls run_to without the lock: the runtime calls `publish` with its own lock held. */
void process_link::run(void)
{
    enum { LEAVING_MS = 1000 };
    auto now = []() { return std::chrono::steady_clock::now(); };
    auto began_to_leave = now();
    bool is_there = true, was_leaving = false;
    std::vector<int> waiting;
    for (;;) {
        if (is_there)
            look_for(waiting.empty() ? was_leaving ? 10 : -1 : 1);
        waiting.clear();
        {
            std::lock_guard<std::mutex> guard(lock);
            frame f;
            is_there = is_there && hub->flush() && hub->fill();
            while (hub->take(&f))
                hear(f);
            if (!is_there && !final && !is_leaving)
                break_off(ncclRemoteError, "the process that has named the communicator is gone");
            if (is_leaving && !was_leaving)
                began_to_leave = now();
            was_leaving = is_leaving;
            bool is_late = now() - began_to_leave > std::chrono::milliseconds(LEAVING_MS);
            if (is_leaving && (!is_there || !hub->has_output() || is_late))
                return;
            for (const auto &w : wanted)
                if (!w.second)
                    waiting.push_back(w.first);
        }
        for (int group : waiting)
            if (!run_to(group))
                break;
        if (!is_there)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}
