/* The memory that an operation reads and writes. */
#ifndef LK_CUDA_RECORDER_OPERANDS_H
#define LK_CUDA_RECORDER_OPERANDS_H

#include "cuda/driver.h"

#include <vector>

/* A place of memory: a GPU's number, or pinned memory of the host. */
enum { PINNED = -1 };

struct operand {
    uintptr_t begin, end;
    bool is_write;
    int place;
};

class operands
{
  public:
    explicit operands(int place) : place_(place)
    {
    }

    /* Those that follow are there. */
    operands &at(int place)
    {
        place_ = place;
        return *this;
    }

    /* `data` must be there unless there are no bytes. */
    void reads(const void *data, int64_t bytes)
    {
        add(data, bytes, false);
    }

    void writes(const void *data, int64_t bytes)
    {
        add(data, bytes, true);
    }

    /* Where `data` is NULL there is no such operand. */
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
            list_.push_back({(uintptr_t)data, (uintptr_t)data + (uintptr_t)bytes, is_write, place_});
    }

    int place_;
    std::vector<operand> list_;
};

/* What each kernel of kernels.def reads and writes: recorder_operands.cpp. */
#define LK_GPU_KERNEL(name) void operands_of(const lk_gpu_##name &arguments, operands &list);
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL

#endif
