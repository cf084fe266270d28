/* The memory that the host has allocated, and the operations that read and write it. */
#pragma once

#include "recorder_clock.h"
#include "recorder_operands.h"

#include <deque>
#include <map>
#include <string>

/* The access of an operation to one range of memory. */
struct access {
    uintptr_t begin, end;
    bool is_write;
    size_t stream;   /* number of the operation's stream */
    uint64_t tick;   /* on that stream's clock */
    uint64_t number; /* of the operation, among all of the process */
    uint64_t serial; /* of the block that contains the range */
    const char *name;
};

/* The accesses with which a later one may conflict. */
class history
{
  public:
    /* Adds an access whose stream is at `now`. True: it conflicts with an earlier access that is not ordered before it;
     * *met is the first such. Forgets accesses that are before `done`, with which nothing can conflict any more, and
     * those that `next` supersedes. */
    bool add(const access &next, const vector_clock &now, const vector_clock &done, access *met);

    /* The accesses that are not before `done`. */
    std::vector<access> pending(const vector_clock &done) const;

    const std::vector<access> &all() const
    {
        return accesses;
    }

  private:
    std::vector<access> accesses;
};

/* A set of addresses. */
class ranges
{
  public:
    void add(uintptr_t begin, uintptr_t end);
    void remove(uintptr_t begin, uintptr_t end);
    bool meets(uintptr_t begin, uintptr_t end) const;

  private:
    std::vector<std::pair<uintptr_t, uintptr_t>> parts;
};

struct block {
    uintptr_t begin, end;
    int owner;
    uint64_t serial; /* unique: another block at the same address has another serial */
    history uses;
    ranges unmade; /* bytes that failed operations were to write */
};

class memory_map
{
  public:
    void add(const void *data, size_t bytes, int owner);

    /* The block that begins at `data`; NULL: none. */
    block *starting_at(const void *data);

    /* The block that contains an address; NULL: none. */
    block *around(uintptr_t address);

    void remove(block *gone);

    /* The block that contains an operand; NULL, with the reason, if there is none or the operand does not fit it. */
    block *holding(const operand &o, std::string *wrong);

  private:
    std::map<uintptr_t, block> blocks;
    std::deque<block> freed; /* the last ones, to tell freed memory from memory that was never allocated */
    uint64_t last_serial = 0;
};
