#include "nccl_wire.h"

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

struct head {
    int32_t what, number;
    uint64_t bytes;
};

connection::~connection()
{
    close(socket);
}

void connection::put(const frame &f)
{
    head h = {(int32_t)f.what, f.number, f.body.size()};
    output.append((const char *)&h, sizeof h);
    output.append(f.body);
}

bool connection::flush()
{
    size_t sent = 0;
    bool is_there = true;
    while (sent < output.size() && is_there) {
        ssize_t n = send(socket, output.data() + sent, output.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        is_there = n >= 0 || errno == EINTR;
        sent += n > 0 ? (size_t)n : 0;
    }
    output.erase(0, sent);
    return is_there;
}

bool connection::fill()
{
    enum { CHUNK = 1 << 16 };
    for (;;) {
        size_t before = input.size();
        input.resize(before + CHUNK);
        ssize_t n = recv(socket, &input[before], CHUNK, MSG_DONTWAIT);
        input.resize(before + (n > 0 ? (size_t)n : 0));
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
}

bool connection::take(frame *f)
{
    head h;
    if (input.size() < sizeof h)
        return false;
    memcpy(&h, input.data(), sizeof h);
    if (input.size() - sizeof h < h.bytes)
        return false;
    *f = {(tells)h.what, h.number, input.substr(sizeof h, h.bytes)};
    input.erase(0, sizeof h + h.bytes);
    return true;
}
