/* The memory that an operation reads and writes. */
#pragma once

#include "cuda/driver.h"

#include <vector>

/* The owner of memory: a GPU's number, or PINNED for pinned memory of the host. */
enum { PINNED = -1 };

struct operand {
    uintptr_t begin, end;
    bool is_write;
    int owner;
};

class operands
{
  public:
    explicit operands(int owner) : owner_(owner)
    {
    }

    /* Sets the owner of the operands that are added next. */
    operands &at(int owner)
    {
        owner_ = owner;
        return *this;
    }

    /* `data` must not be NULL unless `bytes` is 0. */
    void reads(const void *data, int64_t bytes)
    {
        add(data, bytes, false);
    }

    void writes(const void *data, int64_t bytes)
    {
        add(data, bytes, true);
    }

    /* `data` NULL: there is no such operand. */
    void may_read(const void *data, int64_t bytes)
    {
        if (data)
            add(data, bytes, false);
    }

    void may_write(const void *data, int64_t bytes)
    {
        if (data)
            add(data, bytes, true);
    }

    const std::vector<operand> &list() const
    {
        return list_;
    }

  private:
    void add(const void *data, int64_t bytes, bool is_write)
    {
        if (bytes > 0)
            list_.push_back({(uintptr_t)data, (uintptr_t)data + (uintptr_t)bytes, is_write, owner_});
    }

    int owner_;
    std::vector<operand> list_;
};

/* recorder_operands.cpp: adds the memory that each kernel of kernels.def reads and writes. */
#define LK_GPU_KERNEL(name) void operands_of(const lk_gpu_##name &arguments, operands &list);
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
