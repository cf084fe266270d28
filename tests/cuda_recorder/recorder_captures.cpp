/* Events, captures and graphs. */
#include "recorder.h"
#include "recorder_report.h"

/* --- events ------------------------------------------------------------------------------------------------------- */

bool recorder::record(const lk_gpu_stream *stream, const lk_gpu_event *event)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "event_record");
    if (!s)
        return false;
    if (s->capturing)
        events[event] = {s->capturing->branches[s], s->capturing->id};
    else
        events[event] = {s->now, 0};
    return true;
}

/* A stream joins a capture when it follows an event of it. */
bool recorder::follow(const lk_gpu_stream *stream, const lk_gpu_event *event)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "event_follow");
    if (!s)
        return false;
    const event_state &e = events[event];
    if (s->capturing && s->capturing->id != e.capture)
        return refuse(stream_name(s->number) + " follows an event from outside while it is captured");
    if (!e.capture) {
        s->now.join(e.when);
        return true;
    }
    for (const std::shared_ptr<capture> &c : captures) {
        if (c->id != e.capture)
            continue;
        s->capturing = c;
        c->branches[s].join(e.when);
        return true;
    }
    return refuse(stream_name(s->number) + " follows an event of a capture that has ended");
}

void recorder::forget(const lk_gpu_event *event)
{
    std::lock_guard<std::mutex> guard(lock);
    events.erase(event);
}

/* --- captures ----------------------------------------------------------------------------------------------------- */

bool recorder::check_not_capturing(const char *name)
{
    for (const std::shared_ptr<capture> &c : captures)
        if (c->thread == std::this_thread::get_id())
            return refuse(text("%s while the thread captures a graph", name));
    return true;
}

bool recorder::begin_capture(const lk_gpu_stream *stream)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "capture_begin");
    if (!s)
        return false;
    if (s->capturing)
        return refuse("capture_begin on " + stream_name(s->number) + ", which is captured already");
    s->capturing.reset(new capture{++last_capture, s, std::this_thread::get_id(), {}, {}});
    s->capturing->branches[s] = {};
    captures.push_back(s->capturing);
    return true;
}

/* Returns whether the end of the capture is ordered behind all work of its side streams. */
bool recorder::is_joined(const capture &c)
{
    const vector_clock &end = c.branches.at(c.origin);
    for (const auto &branch : c.branches) {
        size_t side = branch.first->number;
        if (end.at(side) >= branch.second.at(side))
            continue;
        report("capture_end on " + stream_name(c.origin->number) + ", which does not follow what " + stream_name(side) +
               " was given");
        return false;
    }
    return true;
}

bool recorder::end_capture(const lk_gpu_stream *stream, graph_state *graph)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "capture_end");
    if (!s)
        return false;
    std::shared_ptr<capture> c = s->capturing;
    if (!c || c->origin != s)
        return refuse("capture_end on " + stream_name(s->number) + ", where no capture began");
    if (c->thread != std::this_thread::get_id())
        return refuse("capture_end on " + stream_name(s->number) + " in another thread than capture_begin");
    graph->is_whole = is_joined(*c);
    for (const auto &branch : c->branches)
        branch.first->capturing.reset();
    captures.erase(std::find(captures.begin(), captures.end(), c));
    graph->uses = c->uses.all();
    return true;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

void recorder::captured(const lk_gpu_graph *graph, graph_state &&state)
{
    std::lock_guard<std::mutex> guard(lock);
    graphs[graph] = std::move(state);
}

bool recorder::launch(const lk_gpu_stream *stream, const lk_gpu_graph *graph)
{
    std::lock_guard<std::mutex> guard(lock);
    stream_state *s = find(stream, "graph_launch");
    auto found = graphs.find(graph);
    if (!s)
        return false;
    if (found == graphs.end())
        return refuse("graph_launch of a graph that is not there");
    n_operations++;
    std::vector<std::pair<block *, access>> uses(found->second.uses.size());
    for (size_t i = 0; i < uses.size(); i++) {
        access a = found->second.uses[i];
        block *b = memory.around(a.begin);
        a.stream = s->number;
        a.number = n_operations;
        if (!b || b->serial != a.serial)
            return refuse("graph_launch: " + text_of(a) + ": memory that was freed since it was captured");
        uses[i] = {b, a};
    }
    vector_clock &launched = found->second.launched;
    s->now.join(launched);
    commit(*s, uses);
    launched = s->now;
    return true;
}

void recorder::forget(const lk_gpu_graph *graph)
{
    std::lock_guard<std::mutex> guard(lock);
    graphs.erase(graph);
}
