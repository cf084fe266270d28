/* Messages between the processes of a communicator. Each process sends to a hub, a thread of the process that has named
 * the communicator, which passes the message on to the others. Sockets have names in Linux's abstract namespace, which
 * disappear with their processes. */
#pragma once

#include "nccl.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

enum class tells : int32_t {
    JOINS,     /* to the hub: rank `number` joins, with an `introduction` */
    PART,      /* to all: what the sender's ranks send and ask for in group `number` */
    FINALIZES, /* to the hub: rank `number` finalizes */
    LEAVES,    /* to the hub: the connection ends, but not the process */
    ALL_HERE,  /* from the hub: all ranks have joined */
    ALL_FINAL, /* from the hub: all ranks have finalized */
    REFUSED,   /* from the hub: the ranks do not match; `number` is an ncclResult_t, the body its text */
    LOST,      /* from the hub: a process has ended without leaving; the body is a text */
};

struct frame {
    tells what;
    int32_t number;
    std::string body;
};

struct introduction {
    int32_t ranks, gpu, shares_gpus;
};

/* One end of a connection. Never blocks: it buffers output that is not sent yet, and input of an incomplete frame. For
 * one thread at a time. */
class connection
{
  public:
    explicit connection(int socket_) : socket(socket_)
    {
    }
    ~connection();
    connection(const connection &) = delete;

    void put(const frame &f);
    bool has_output() const
    {
        return !output.empty();
    }
    bool flush();        /* false: the other end is gone */
    bool fill();         /* false: the other end is gone, and all its input has been read */
    bool take(frame *f); /* false: there is no whole frame yet */

    const int socket;

  private:
    std::string output, input;
};

/* Starts a hub for the ranks of a communicator, and returns its name; empty: there is no socket. The hub ends when the
 * last connected process leaves, or with hub_cancel if no process has connected. */
std::string hub_open(void);
void hub_cancel(const std::string &name);
int hub_connect(const std::string &name); /* a socket; -1: there is no hub of that name */

/* This process's connection with the others. Thread-safe. Only `run_to` calls the runtime. */
class process_link
{
  public:
    /* run_to(group) runs this process's streams up to the task that sends their part of a group, because another
     * process waits for it; it returns whether they have reached it. */
    process_link(const std::string &name, std::function<bool(int)> run_to);
    ~process_link();

    void join(int rank, const introduction &who);
    void publish(int group, std::string part);
    void finalize(int rank);
    /* Announces that this process leaves in good order, and closes the connection. */
    void leave(void);

    bool is_complete(void);
    bool is_final(void);
    ncclResult_t error(std::string *why);
    /* ranks_told: the number of ranks for which other processes have sent their part of a group. take_parts: returns
     * these parts, and forgets them. */
    int ranks_told(int group);
    std::vector<std::string> take_parts(int group);

  private:
    void run(void);
    void look_for(int timeout_ms);
    void hear(frame &f);
    void break_off(ncclResult_t result, const std::string &why);
    void wake(void);

    std::mutex lock;
    std::unique_ptr<connection> hub; /* NULL: there is no hub */
    std::function<bool(int)> run_to;
    int waker[2];
    bool is_leaving = false, complete = false, final = false;
    ncclResult_t result = ncclSuccess;
    std::string reason;
    std::map<int, std::vector<std::string>> parts;
    std::map<int, int> ranks;   /* how many are in the parts of a group */
    std::map<int, bool> wanted; /* groups for which others wait: whether this process has sent its part */
    std::thread thread;
};
