/* The memory that the host has allocated, and who uses it: which operation of which stream reads and writes what. */
#ifndef LK_CUDA_RECORDER_MEMORY_H
#define LK_CUDA_RECORDER_MEMORY_H

#include "recorder_clock.h"
#include "recorder_operands.h"

#include <deque>
#include <map>
#include <string>

/* An operation at one range of memory. */
struct access {
    uintptr_t begin, end;
    bool is_write;
    size_t stream;   /* the number of the stream that it was given to */
    uint64_t tick;   /* of that stream's clock */
    uint64_t number; /* of the operation, among all of the process */
    uint64_t serial; /* of the block that it is in */
    const char *name;
};

/* The accesses that a later one may come into conflict with. */
class history
{
  public:
    /* Adds an access whose stream is at `now`. Gives the first that it meets in a byte that one of them writes though
     * nothing orders them; false where there is none. What is done before `done` is forgotten: nothing to come can meet
     * it. So is whatever a later access stands for as well. */
    bool add(const access &next, const vector_clock &now, const vector_clock &done, access *met);

    /* Those that are not done before `done`. */
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
    int place;
    uint64_t serial; /* of allocations: another block at the same address has another */
    history uses;
    ranges unmade; /* what operations were to write that have failed */
};

class memory_map
{
  public:
    void add(const void *data, size_t bytes, int place);

    /* The block that begins at `data`; NULL: there is none. */
    block *starting_at(const void *data);

    /* The block that an address is in; NULL: there is none. */
    block *around(uintptr_t address);

    void remove(block *gone);

    /* The block that an operand lies in, or NULL, with what is wrong about it. */
    block *holding(const operand &o, std::string *wrong);

  private:
    std::map<uintptr_t, block> blocks;
    std::deque<block> freed; /* the last ones, to tell what was freed from what never was there */
    uint64_t last_serial = 0;
};

#endif
