/* The hub is a thread at which the ranks of several processes meet. NCCL starts one, too, when a communicator is named;
 * here it also passes on the messages between processes, so that each process needs only one connection. */
#include "nccl_wire.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <set>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct member {
    std::unique_ptr<connection> end;
    std::vector<int> ranks;
    bool has_left;
};

class hub
{
  public:
    explicit hub(int listener_) : listener(listener_)
    {
    }
    ~hub()
    {
        close(listener);
    }
    void run(void);

  private:
    bool is_needed(void) const
    {
        return is_listening || !members.empty();
    }
    void wait(void);
    void welcome(void);
    void serve(member &m);
    void hear(member &m, const frame &f);
    void join(member &m, int rank, const std::string &body);
    void end(const member &m);
    void tell(const frame &f, const member *all_but);

    int listener;
    bool is_listening = true;
    std::vector<std::unique_ptr<member>> members;
    int ranks = 0;
    std::map<int, introduction> joined;
    std::set<int> final;
    std::vector<frame> news; /* messages for processes that connect late */
};

void hub::tell(const frame &f, const member *all_but)
{
    for (const std::unique_ptr<member> &m : members)
        if (m.get() != all_but)
            m->end->put(f);
}

/* Checks what NCCL checks before it connects ranks. */
void hub::join(member &m, int rank, const std::string &body)
{
    introduction who;
    memcpy(&who, body.data(), sizeof who);
    ranks = ranks ? ranks : who.ranks;
    frame refused = {tells::REFUSED, ncclSuccess, ""};
    if (rank < 0 || rank >= ranks || who.ranks != ranks || joined.count(rank))
        refused = {tells::REFUSED, ncclInvalidArgument, "ranks do not agree"};
    for (const auto &other : joined)
        if (other.second.gpu == who.gpu && !who.shares_gpus)
            refused = {tells::REFUSED, ncclInvalidUsage,
                       "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                           std::to_string(other.first) + " both on GPU " + std::to_string(who.gpu)};
    if (refused.number != ncclSuccess) {
        news.push_back(refused);
        return tell(refused, nullptr);
    }
    joined[rank] = who;
    m.ranks.push_back(rank);
    if ((int)joined.size() == ranks)
        tell({tells::ALL_HERE, 0, ""}, nullptr);
}

void hub::hear(member &m, const frame &f)
{
    switch (f.what) {
    case tells::JOINS:
        return join(m, f.number, f.body);
    case tells::PART:
        return tell(f, &m);
    case tells::FINALIZES:
        final.insert(f.number);
        if ((int) final.size() == ranks)
            tell({tells::ALL_FINAL, 0, ""}, nullptr);
        return;
    case tells::LEAVES:
        m.has_left = true;
        return;
    default:
        fprintf(stderr, "emulated NCCL: a process tells what only the hub does\n");
        abort();
    }
}

void hub::end(const member &m)
{
    const char *silent = getenv("LOCKSTEP_EMULATED_NCCL_SILENT");
    if (m.has_left || (silent && *silent))
        return;
    std::string text = "the process of";
    for (int rank : m.ranks)
        text += " rank " + std::to_string(rank);
    news.push_back({tells::LOST, 0, text + " has closed its connection"});
    tell(news.back(), &m);
}

void hub::serve(member &m)
{
    frame f;
    bool is_there = m.end->flush() && m.end->fill();
    while (m.end->take(&f))
        hear(m, f);
    if (is_there && !m.has_left)
        return;
    end(m);
    for (size_t i = 0; i < members.size(); i++) {
        if (members[i].get() != &m)
            continue;
        members.erase(members.begin() + (ptrdiff_t)i);
        return;
    }
}

/* accept4 fails after the listener was shut down. */
void hub::welcome(void)
{
    int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
        is_listening = false;
        return;
    }
    members.push_back(std::unique_ptr<member>(new member{std::make_unique<connection>(socket), {}, false}));
    for (const frame &f : news)
        members.back()->end->put(f);
}

void hub::wait(void)
{
    std::vector<pollfd> ends;
    for (const std::unique_ptr<member> &m : members)
        ends.push_back({m->end->socket, (short)(POLLIN | (m->end->has_output() ? POLLOUT : 0)), 0});
    if (is_listening)
        ends.push_back({listener, POLLIN, 0});
    poll(ends.data(), ends.size(), -1);
    if (is_listening && ends.back().revents)
        welcome();
    for (const pollfd &end : ends) /* searches, because serve may remove members */
        for (size_t i = 0; i < members.size() && end.revents; i++)
            if (members[i]->end->socket == end.fd) {
                serve(*members[i]);
                break;
            }
}

void hub::run(void)
{
    bool had_members = false;
    while (is_needed()) {
        wait();
        had_members |= !members.empty();
        is_listening = is_listening && (!had_members || !members.empty());
    }
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* The hubs of this process. Never destroyed: threads may still use them when static objects are. */
static std::mutex &lock = *new std::mutex;
static std::map<std::string, int> &listeners = *new std::map<std::string, int>;

static socklen_t address_of(const std::string &name, sockaddr_un *address)
{
    *address = {};
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name.data(), name.size());
    return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string hub_open(void)
{
    static int opened;
    sockaddr_un address;
    uint64_t number = 0;
    char name[80];
    std::lock_guard<std::mutex> guard(lock);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return "";
    snprintf(name, sizeof name, "lockstep-emulated-nccl-%d-%d-%016llx", (int)getpid(), ++opened,
             (unsigned long long)number);
    socklen_t size = address_of(name, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (sockaddr *)&address, size) != 0 || listen(listener, 64) != 0) {
        close(listener);
        return "";
    }
    listeners[name] = listener;
    std::thread([listener, key = std::string(name)]() {
        {
            hub h(listener);
            h.run();
            std::lock_guard<std::mutex> ended(lock);
            listeners.erase(key);
        }
    }).detach();
    return name;
}

void hub_cancel(const std::string &name)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = listeners.find(name);
    if (found != listeners.end())
        shutdown(found->second, SHUT_RDWR);
}

int hub_connect(const std::string &name)
{
    sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end >= 0 && connect(end, (sockaddr *)&address, size) == 0)
        return end;
    close(end);
    return -1;
}
