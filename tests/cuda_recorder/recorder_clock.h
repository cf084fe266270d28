/* Vector clocks: for every stream, how many of its operations come before some point. */
#pragma once

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
