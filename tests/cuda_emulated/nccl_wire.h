/* Between the processes of a communicator: each tells a hub, a thread of the process that has named the communicator,
 * and that tells the others. Sockets have names in Linux's abstract namespace, of which nothing is left when their
 * processes are gone. */
#ifndef LK_CUDA_EMULATED_NCCL_WIRE_H
#define LK_CUDA_EMULATED_NCCL_WIRE_H

#include "nccl.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

enum class tells : int32_t {
    JOINS,     /* the hub: rank `number`, with `introduction` */
    PART,      /* everybody: of group `number`, what the sender's ranks send and ask for */
    FINALIZES, /* the hub: rank `number` */
    LEAVES,    /* the hub: the connection ends, and the process goes on */
    ALL_HERE,  /* by the hub: all ranks have joined */
    ALL_FINAL, /* by the hub: all ranks have finalized */
    REFUSED,   /* by the hub: ranks do not fit together; `number` is an ncclResult_t, with a text */
    LOST,      /* by the hub: a process has ended without leaving; with a text */
};

struct frame {
    tells what;
    int32_t number;
    std::string body;
};

struct introduction {
    int32_t ranks, gpu, shares_gpus;
};

/* One end; what is not sent yet, and what has come of a frame, is kept, so nothing waits. One thread at a time. */
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
    bool flush();        /* false: nobody is there */
    bool fill();         /* false: likewise, and all that came has been read */
    bool take(frame *f); /* false: there is none yet */

    const int socket;

  private:
    std::string output, input;
};

/* A name under which a hub waits for the ranks of a communicator; empty: there is no socket. It ends with the last of
 * the processes that have come, or when nobody needs it. */
std::string hub_open(void);
void hub_cancel(const std::string &name);
int hub_connect(const std::string &name); /* a socket; -1: there is no hub of that name */

/* This process's connection with the others. From any thread; nothing here calls the runtime, but `run_to` does. */
class process_link
{
  public:
    /* run_to(group): tries to bring this process's streams to where their part of a group is told, because another
     * process waits for it; whether they are there. */
    process_link(const std::string &name, std::function<bool(int)> run_to);
    ~process_link();

    void join(int rank, const introduction &who);
    void publish(int group, std::string part);
    void finalize(int rank);
    /* In good order: this process's end is no death. No more is heard then. */
    void leave(void);

    bool is_complete(void);
    bool is_final(void);
    ncclResult_t error(std::string *why);
    /* What other processes have told of a group: of how many ranks, and all of it, which is then forgotten. */
    int ranks_told(int group);
    std::vector<std::string> take_parts(int group);

  private:
    void run(void);
    void look_for(int timeout_ms);
    void hear(frame &f);
    void break_off(ncclResult_t result, const std::string &why);
    void wake(void);

    std::mutex lock;
    std::unique_ptr<connection> hub; /* NULL: the hub is not there */
    std::function<bool(int)> run_to;
    int waker[2];
    bool is_leaving = false, complete = false, final = false;
    ncclResult_t result = ncclSuccess;
    std::string reason;
    std::map<int, std::vector<std::string>> parts;
    std::map<int, int> ranks;   /* in these */
    std::map<int, bool> wanted; /* groups that others wait for: whether they were told */
    std::thread thread;
};

#endif
