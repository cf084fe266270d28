#include "dist/collectives/exchange_run.h"

#include "base/minmax.h"
#include "core/backend.h"

#include <string.h>

/* The part of `words` that is contiguous in every node: all of them if they are packed, else those of span q. */
static lk_range exchange_run_part(const lk_exchange_run *r, lk_range words, int q)
{
    if (!r->plan->opts.in_place)
        return words;
    int64_t begin = lk__max(words.begin, r->spans[q].begin);
    return (lk_range){begin, lk__max(begin, lk__min(words.end, r->spans[q].begin + r->spans[q].words))};
}

static int exchange_run_parts(const lk_exchange_run *r)
{
    return r->plan->opts.in_place ? r->n_spans : 1;
}

/* The memory of a place on device d, from the word on that lies `offset` words behind it, in span q. */
static const float *exchange_run_memory(const lk_exchange_run *r, int d, lk_exchange_place place, int64_t offset, int q)
{
    if (place.node < 0)
        return r->buffers[d] + place.begin + offset;
    return r->values[place.node * r->n_spans + q] + place.begin + offset - r->spans[q].begin;
}

/* Lists what a transfer moves: one message, or one for each span that is read in place. Returns their number. */
static int exchange_run_list_transfer(const lk_exchange_run *r, const lk_exchange_transfer *t, lk_transfer *list)
{
    const lk_exchange_plan_opts *of = &r->plan->opts;
    int n = 0, from = t->from - of->first, to = t->to - of->first;
    bool is_cut = t->cut && of->in_place;
    for (int q = 0; q < (is_cut ? r->n_spans : 1); q++) {
        lk_range words = is_cut ? exchange_run_part(r, t->words, q) : t->words;
        int64_t offset = words.begin - t->words.begin;
        if (words.begin == words.end)
            continue;
        list[n++] =
            (lk_transfer){.from = t->from,
                          .to = t->to,
                          .before = t->before,
                          .x = from >= 0 && from < of->n ? exchange_run_memory(r, from, t->source, offset, q) : NULL,
                          .y = to >= 0 && to < of->n ? r->buffers[to] + t->target + offset : NULL,
                          .count = words.end - words.begin};
    }
    return n;
}

static lk_status exchange_run_move(const lk_exchange_run *r, int step)
{
    const lk_exchange_plan_opts *of = &r->plan->opts;
    const lk_exchange_step *s = &r->plan->steps[step];
    bool gathers = step >= r->plan->reducing;
    lk_transfers transfers = {.links = r->links,
                              .table = r->table,
                              .group = r->group,
                              .n = of->n,
                              .first = of->first,
                              .ranks = of->ranks,
                              .is_first = step == 0,
                              .to_all = !r->along_tree && (gathers || r->plan->opts.whole),
                              .compressed = r->compressed,
                              .replicates = gathers,
                              .rows = r->sums,
                              .list = r->list};
    if (gathers && !r->along_tree && r->transport->gather)
        return r->transport->gather(&(lk_transport_rows){r->links, r->table, of->n, of->first, r->sums, of->row},
                                    of->row / of->ranks);
    for (int i = s->first_transfer; i < s->first_transfer + s->n_transfers; i++)
        transfers.count += exchange_run_list_transfer(r, &r->plan->transfers[i], r->list + transfers.count);
    return r->transport->move(&transfers);
}

static lk_status exchange_run_add_up(const lk_exchange_run *r, const lk_exchange_sum *s)
{
    int d = s->rank - r->plan->opts.first;
    lk_links_sum sum = {.dtype = r->dtype, .n_addends = s->count};
    memcpy(sum.additions, r->plan->additions + s->first, (size_t)s->count);
    for (int q = 0; q < exchange_run_parts(r); q++) {
        lk_range words = exchange_run_part(r, s->words, q);
        if (words.begin == words.end)
            continue;
        for (int a = 0; a < s->count; a++)
            sum.addends[a] = exchange_run_memory(r, d, r->plan->addends[s->first + a], words.begin - s->words.begin, q);
        sum.y = r->buffers[d] + s->target + (words.begin - s->words.begin);
        sum.count = (words.end - words.begin) * (int64_t)sizeof(float) / (int64_t)lk_dtype_size(r->dtype);
        LK_TRY(r->table->sum(r->links, d, &sum));
    }
    return LK_OK;
}

static lk_status exchange_run_step(const lk_exchange_run *r, int step)
{
    const lk_exchange_step *s = &r->plan->steps[step];
    LK_TRY(exchange_run_move(r, step));
    for (int i = s->first_sum; i < s->first_sum + s->n_sums; i++)
        LK_TRY(exchange_run_add_up(r, &r->plan->sums[i]));
    return LK_OK;
}

lk_status lk__exchange_run(const lk_exchange_run *r)
{
    for (int step = 0; step < r->plan->n_steps; step++)
        LK_TRY(exchange_run_step(r, step));
    return LK_OK;
}

size_t lk__exchange_transfers(const lk_exchange_plan *plan, int n_spans)
{
    int64_t most = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        int64_t n = 0;
        for (int i = 0; i < plan->steps[s].n_transfers; i++)
            n += plan->transfers[plan->steps[s].first_transfer + i].cut && plan->opts.in_place ? n_spans : 1;
        most = lk__max(most, n);
    }
    return (size_t)most;
}
