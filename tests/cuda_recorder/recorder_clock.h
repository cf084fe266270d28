/* Vector clocks: of every stream, how much of what it was given has been done before some point. */
#ifndef LK_CUDA_RECORDER_CLOCK_H
#define LK_CUDA_RECORDER_CLOCK_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

class vector_clock
{
  public:
    uint64_t at(size_t stream) const
    {
        return stream < ticks.size() ? ticks[stream] : 0;
    }

    uint64_t advance(size_t stream)
    {
        ticks.resize(std::max(ticks.size(), stream + 1));
        return ++ticks[stream];
    }

    void join(const vector_clock &other)
    {
        ticks.resize(std::max(ticks.size(), other.ticks.size()));
        for (size_t i = 0; i < other.ticks.size(); i++)
            ticks[i] = std::max(ticks[i], other.ticks[i]);
    }

  private:
    std::vector<uint64_t> ticks;
};

#endif
