#include "recorder_memory.h"

#include "recorder_report.h"

/* --- accesses ----------------------------------------------------------------------------------------------------- */

static bool is_before(const access &a, const vector_clock &clock)
{
    return a.tick <= clock.at(a.stream);
}

static bool overlap(const access &a, const access &b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Returns whether every access that conflicts with `old` also conflicts with `next`, which comes after it. */
static bool stands_for(const access &next, const access &old)
{
    return next.begin <= old.begin && old.end <= next.end && (next.is_write || !old.is_write);
}

bool history::add(const access &next, const vector_clock &now, const vector_clock &done, access *met)
{
    bool has_met = false;
    size_t kept = 0;
    for (const access &old : accesses) {
        bool is_ordered = is_before(old, now);
        if (is_before(old, done) || (is_ordered && stands_for(next, old)))
            continue;
        if (!is_ordered && overlap(old, next) && (old.is_write || next.is_write)) {
            if (!has_met)
                *met = old;
            has_met = true;
            continue; /* reports it only once */
        }
        accesses[kept++] = old;
    }
    accesses.resize(kept);
    accesses.push_back(next);
    return has_met;
}

std::vector<access> history::pending(const vector_clock &done) const
{
    std::vector<access> left;
    for (const access &a : accesses)
        if (!is_before(a, done))
            left.push_back(a);
    return left;
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

void ranges::add(uintptr_t begin, uintptr_t end)
{
    remove(begin, end);
    parts.push_back({begin, end});
}

void ranges::remove(uintptr_t begin, uintptr_t end)
{
    std::vector<std::pair<uintptr_t, uintptr_t>> left;
    for (const auto &part : parts) {
        if (part.first < std::min(part.second, begin))
            left.push_back({part.first, std::min(part.second, begin)});
        if (std::max(part.first, end) < part.second)
            left.push_back({std::max(part.first, end), part.second});
    }
    parts.swap(left);
}

bool ranges::meets(uintptr_t begin, uintptr_t end) const
{
    for (const auto &part : parts)
        if (part.first < end && begin < part.second)
            return true;
    return false;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

enum { REMEMBERED = 256 };

void memory_map::add(const void *data, size_t bytes, int owner)
{
    uintptr_t begin = (uintptr_t)data;
    blocks[begin] = {begin, begin + bytes, owner, ++last_serial, {}, {}};
}

block *memory_map::starting_at(const void *data)
{
    auto found = blocks.find((uintptr_t)data);
    return found == blocks.end() ? nullptr : &found->second;
}

void memory_map::remove(block *gone)
{
    freed.push_back({gone->begin, gone->end, gone->owner, gone->serial, {}, {}});
    if (freed.size() > REMEMBERED)
        freed.pop_front();
    blocks.erase(gone->begin);
}

static std::string owner_name(int owner)
{
    return owner == PINNED ? "pinned memory" : text("memory of GPU %d", owner);
}

block *memory_map::around(uintptr_t address)
{
    auto next = blocks.upper_bound(address);
    block *b = next == blocks.begin() ? nullptr : &std::prev(next)->second;
    return b && address < b->end ? b : nullptr;
}

block *memory_map::holding(const operand &o, std::string *wrong)
{
    block *b = around(o.begin);
    if (!b) {
        bool was_freed = false;
        for (const block &old : freed)
            was_freed = was_freed || (old.begin <= o.begin && o.begin < old.end);
        *wrong = was_freed ? "memory that was freed" : "memory that was never allocated";
        return nullptr;
    }
    if (o.end > b->end)
        *wrong = text("%zu bytes past the end of %zu that were allocated", (size_t)(o.end - b->end),
                      (size_t)(b->end - b->begin));
    else if (o.owner != b->owner)
        *wrong = owner_name(b->owner) + " where it must be " + owner_name(o.owner);
    return wrong->empty() ? b : nullptr;
}
