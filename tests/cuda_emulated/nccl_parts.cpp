#include "nccl_parts.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

/* --- texts -------------------------------------------------------------------------------------------------------- */

struct packed_rank {
    int32_t rank, operations;
};

struct packed_operation {
    int32_t kind, peer;
    uint64_t count;
};

template <typename T> static void append(std::string *text, const T &value)
{
    text->append((const char *)&value, sizeof value);
}

static bool is_sent(operation::kinds kind)
{
    return kind != operation::RECEIVE;
}

/* Everything is a multiple of four bytes long, so that the elements are aligned in the text. */
std::string pack_part(const requests &asked)
{
    std::string text;
    for (const auto &r : asked) {
        append(&text, packed_rank{r.first, (int32_t)r.second.size()});
        for (const operation &o : r.second) {
            append(&text, packed_operation{o.kind, o.peer, o.count});
            if (is_sent(o.kind))
                text.append((const char *)o.x, o.count * sizeof *o.x);
        }
    }
    return text;
}

int unpack_part(const std::string &part, requests *asked)
{
    int ranks = 0;
    size_t at = 0;
    while (at < part.size()) {
        packed_rank r;
        memcpy(&r, &part[at], sizeof r);
        at += sizeof r;
        ranks++;
        for (int i = 0; i < r.operations; i++) {
            packed_operation o;
            memcpy(&o, &part[at], sizeof o);
            at += sizeof o;
            operation::kinds kind = (operation::kinds)o.kind;
            const float *x = is_sent(kind) ? (const float *)&part[at] : nullptr;
            (*asked)[r.rank].push_back({kind, x, nullptr, o.count, o.peer});
            at += is_sent(kind) ? o.count * sizeof *x : 0;
        }
        (*asked)[r.rank].shrink_to_fit();
    }
    return ranks;
}

/* --- carrying out ------------------------------------------------------------------------------------------------- */

static void copy(float *to, const float *from, size_t count)
{
    if (to && to != from)
        memcpy(to, from, count * sizeof *to);
}

/* Matches the k-th send from one rank to another with the k-th receive of the other from it. */
static void deliver(const requests &asked)
{
    std::map<std::pair<int, int>, std::deque<operation>> sent;
    for (const auto &r : asked)
        for (const operation &o : r.second)
            if (o.kind == operation::SEND)
                sent[{r.first, o.peer}].push_back(o);
    for (const auto &r : asked) {
        for (const operation &o : r.second) {
            if (o.kind != operation::RECEIVE)
                continue;
            std::deque<operation> &from = sent[{o.peer, r.first}];
            if (from.empty() || from.front().count != o.count) {
                fprintf(stderr, "emulated NCCL: rank %d receives what rank %d does not send\n", r.first, o.peer);
                abort();
            }
            copy(o.y, from.front().x, o.count);
            from.pop_front();
        }
    }
    for (const auto &left : sent) {
        if (left.second.empty())
            continue;
        fprintf(stderr, "emulated NCCL: nobody receives what rank %d sends\n", left.first.first);
        abort();
    }
}

static bool is_collective(const operation &o)
{
    return o.kind == operation::GATHER || o.kind == operation::REDUCE;
}

/* Carries out a collective, the i-th operation of each rank. */
static void collect(const requests &asked, size_t i, const operation &first)
{
    std::vector<float> sum(first.count);
    for (const auto &r : asked) {
        if (i >= r.second.size() || r.second[i].kind != first.kind || r.second[i].count != first.count) {
            fprintf(stderr, "emulated NCCL: ranks ask for different collectives\n");
            abort();
        }
        for (size_t e = 0; e < first.count; e++)
            sum[e] += r.second[i].x[e];
    }
    for (const auto &to : asked) {
        float *y = to.second[i].y;
        if (first.kind == operation::REDUCE)
            copy(y, sum.data(), first.count);
        size_t offset = 0;
        for (const auto &from : asked) {
            if (first.kind == operation::GATHER && y)
                copy(y + offset, from.second[i].x, first.count);
            offset += first.count;
        }
    }
}

void carry_out(const requests &asked)
{
    deliver(asked);
    if (asked.empty())
        return;
    const std::vector<operation> &first = asked.begin()->second;
    for (size_t i = 0; i < first.size(); i++)
        if (is_collective(first[i]))
            collect(asked, i, first[i]);
}
