/* Streams, operations, waits and memory; recorder_captures.cpp has events, captures and graphs. */
#include "recorder.h"

#include "recorder_report.h"

thread_local std::string refusal;

bool refuse(const std::string &line)
{
    report(line);
    refusal = "cuda recorder: " + line;
    return false;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

std::string recorder::stream_name(size_t number) const
{
    return text("stream %zu (GPU %d)", number, gpus[number]);
}

std::string recorder::text_of(const access &a) const
{
    return text("operation %llu, %s on %s, %s %zu bytes at %p", (unsigned long long)a.number, a.name,
                stream_name(a.stream).c_str(), a.is_write ? "writes" : "reads", (size_t)(a.end - a.begin),
                (void *)a.begin);
}

stream_state *recorder::find(const lk_gpu_stream *stream, const char *name)
{
    auto found = streams.find(stream);
    if (found != streams.end())
        return found->second.get();
    refuse(text("%s on a stream that is not open", name));
    return nullptr;
}

void recorder::opened(const lk_gpu_stream *stream, int gpu)
{
    std::lock_guard<std::mutex> guard(lock);
    std::unique_ptr<stream_state> s(new stream_state{});
    s->number = gpus.size();
    s->gpu = gpu;
    gpus.push_back(gpu);
    streams[stream] = std::move(s);
}

bool recorder::close(const lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "close");
    if (!s)
        return false;
    if (s->capturing)
        return refuse(stream_name(s->number) + " is closed in a capture");
    if (s->now.at(s->number) > done.at(s->number) && !lost_gpus.count(s->gpu))
        report(stream_name(s->number) + " is closed before the host has waited for what it was given");
    streams.erase(stream);
    return true;
}

int recorder::gpu_of(const lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = streams.find(stream);
    return found == streams.end() ? 0 : found->second->gpu;
}

void recorder::lost(const lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    if (stream_state *s = find(stream, "an error"))
        lost_gpus.insert(s->gpu);
}

void recorder::exchanges(const lk_gpu_stream *stream, bool is_aborted)
{
    std::lock_guard<std::mutex> guard(lock);
    if (stream_state *s = find(stream, "an exchange"))
        s->exchange = is_aborted ? 0 : s->now.at(s->number);
}

void recorder::paused(int gpu)
{
    std::lock_guard<std::mutex> guard(lock);
    for (const auto &s : streams)
        if (s.second->gpu == gpu && s.second->exchange > done.at(s.second->number) && !lost_gpus.count(gpu))
            report("exchanges are paused while NCCL's kernels may still run on " + stream_name(s.second->number));
}

bool recorder::take(const lk_gpu_stream *stream, const char *name)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = streams.find(stream);
    if (found == streams.end())
        return false; /* the call itself will report it */
    if (!found->second->is_taken)
        return found->second->is_taken = true;
    report(stream_name(found->second->number) + text(" is given %s while another thread gives it something", name));
    return false;
}

void recorder::let_go(const lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = streams.find(stream);
    if (found != streams.end())
        found->second->is_taken = false;
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static uint64_t digest_of(const access &a)
{
    uint64_t digest = 14695981039346656037u; /* FNV-1a */
    for (uintptr_t at = a.begin; at < a.end; at++)
        digest = (digest ^ *(const unsigned char *)at) * 1099511628211u;
    return digest;
}

bool recorder::resolve(const stream_state &s, const char *name, const operand &o, std::pair<block *, access> *use)
{
    std::string wrong;
    access a = {o.begin, o.end, o.is_write, s.number, 0, n_operations, 0, name};
    block *b = memory.holding(o, &wrong);
    if (!b)
        return refuse(text_of(a) + ": " + wrong);
    if (o.is_write)
        b->unmade.remove(o.begin, o.end);
    else if (b->unmade.meets(o.begin, o.end))
        report(text_of(a) + ": an operation that has failed was to write that");
    a.serial = b->serial;
    *use = {b, a};
    return true;
}

/* Orders an operation behind its stream's earlier work, and checks its accesses against earlier ones. */
void recorder::commit(stream_state &s, std::vector<std::pair<block *, access>> &uses)
{
    static const vector_clock nothing;
    capture *c = s.capturing.get();
    vector_clock &now = c ? c->branches[&s] : s.now;
    if (!c)
        now.join(done);
    uint64_t tick = now.advance(s.number);
    for (auto &use : uses) {
        access &a = use.second, met;
        a.tick = tick;
        bool is_unordered = (c ? c->uses : use.first->uses).add(a, now, c ? nothing : done, &met);
        if (is_unordered && !lost_gpus.count(s.gpu)) /* a lost GPU runs nothing, so needs no order */
            report(text_of(a) + ", and nothing orders it behind " + text_of(met));
        if (!c && use.first->owner == PINNED && !a.is_write)
            watches.push_back({a, digest_of(a)});
    }
}

bool recorder::give(const lk_gpu_stream *stream, const char *name, const operands &list)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, name);
    if (!s)
        return false;
    n_operations++;
    std::vector<std::pair<block *, access>> uses(list.list().size());
    for (size_t i = 0; i < uses.size(); i++)
        if (!resolve(*s, name, list.list()[i], &uses[i]))
            return false;
    commit(*s, uses);
    return true;
}

void recorder::failed(const operands &list)
{
    std::lock_guard<std::mutex> guard(lock);
    for (const operand &o : list.list())
        if (block *b = o.is_write ? memory.around(o.begin) : nullptr)
            b->unmade.add(o.begin, o.end);
}

/* --- waits of the host -------------------------------------------------------------------------------------------- */

bool recorder::wait_stream(const lk_gpu_stream *stream, vector_clock *seen)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "wait");
    if (!s || !check_not_capturing("a wait for a stream"))
        return false;
    if (s->capturing)
        return refuse("a wait for " + stream_name(s->number) + ", which is captured");
    *seen = s->now;
    return true;
}

bool recorder::wait_event(const lk_gpu_event *event, vector_clock *seen)
{
    std::lock_guard<std::mutex> guard(lock);
    if (!check_not_capturing("a wait for an event"))
        return false;
    const event_state &e = events[event];
    if (e.capture)
        return refuse("a wait for an event that was recorded in a capture");
    *seen = e.when;
    return true;
}

void recorder::waited(const vector_clock &seen)
{
    std::lock_guard<std::mutex> guard(lock);
    size_t kept = 0;
    done.join(seen);
    for (const watched &w : watches) {
        if (w.copy.tick > done.at(w.copy.stream))
            watches[kept++] = w;
        else if (digest_of(w.copy) != w.digest)
            report(text_of(w.copy) + ", which the host has changed before that was known to be done");
    }
    watches.resize(kept);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

bool recorder::allocate(const char *name)
{
    std::lock_guard<std::mutex> guard(lock);
    return check_not_capturing(name);
}

void recorder::allocated(const void *data, size_t bytes, int owner)
{
    std::lock_guard<std::mutex> guard(lock);
    memory.add(data, bytes, owner);
}

bool recorder::free(const void *data, bool is_pinned)
{
    std::lock_guard<std::mutex> guard(lock);
    const char *name = is_pinned ? "pinned_free" : "free";
    block *b = memory.starting_at(data);
    if (!data || !check_not_capturing(name))
        return !data;
    if (!b || (b->owner == PINNED) != is_pinned)
        return refuse(text("%s of %p, which is not allocated so", name, data));
    vector_clock over = done;
    for (const auto &s : streams)
        if (s.second->gpu == b->owner)
            over.join(s.second->now);
    for (const access &a : b->uses.pending(over))
        if (!lost_gpus.count(gpus[a.stream]))
            return refuse(text("%s of %p, which may still be in use: ", name, data) + text_of(a));
    memory.remove(b);
    return true;
}
