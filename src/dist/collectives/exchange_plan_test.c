/* Runs plans on arrays in place of ranks' memory, one float for each LK_EXCHANGE_ALIGN words, and counts what they
 * send.
 */
#include "dist/collectives/exchange_plan.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status_testing.h"
#include "dist/sum/tree.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_RANKS = 1024, MAX_NODES = 1 << 14 };

/* One exchange: ranges of shards, nodes with values, and the plan. */
typedef struct trial {
    lk_exchange_plan_opts opts;
    lk_exchange_plan *plan;
    int64_t units;   /* of the row */
    float **values;  /* [n_nodes][units] */
    float **buffers; /* [ranks] */
} trial;

static lk_range owned[MAX_RANKS];
static lk_exchange_node nodes[MAX_NODES];
static uint64_t state_of_random;

static int64_t below(int64_t n)
{
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((state_of_random >> 33) % (uint64_t)n);
}

/* Magnitudes spread over 2^16, so that sums in another order round otherwise. */
static float random_value(void)
{
    return ldexpf((float)below(1 << 24) - (float)(1 << 23), (int)below(16));
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static void own_parts(int ranks, int64_t shards)
{
    for (int r = 0; r < ranks; r++)
        owned[r] = lk_part(shards, ranks, r);
}

/* Any ranges of at least one shard. */
static void own_any(int ranks, int64_t shards)
{
    int64_t begin = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t most = shards - begin - (ranks - 1 - r);
        int64_t n = r == ranks - 1 ? most : 1 + below(lk__min(most, 3 * shards / ranks));
        owned[r] = (lk_range){begin, begin + n};
        begin += n;
    }
}

/* The smallest nodes that cover each rank's shards, of which only some have a value. */
static int list_nodes(int ranks, int64_t shards, int percent_present)
{
    int n = 0;
    for (int r = 0; r < ranks; r++) {
        lk_range cover[LK_TREE_COVER];
        int covering = lk__tree_cover(shards, owned[r], cover);
        for (int i = 0; i < covering; i++)
            if (below(100) < percent_present)
                nodes[n++] = (lk_exchange_node){cover[i], r};
        assert_true(n + LK_TREE_COVER < MAX_NODES);
    }
    return n;
}

static void make_plan(trial *t)
{
    assert_ok(lk__exchange_plan_new(&t->opts, &t->plan));
    assert_true(lk__exchange_plan_is_for(t->plan, &t->opts));
    t->units = t->opts.row / LK_EXCHANGE_ALIGN;
}

static void fill_memory(trial *t)
{
    t->values = calloc((size_t)t->opts.n_nodes + 1, sizeof *t->values);
    t->buffers = calloc((size_t)t->opts.ranks, sizeof *t->buffers);
    assert_true(t->values && t->buffers);
    for (int r = 0; r < t->opts.ranks; r++) {
        int64_t n = t->plan->words[r] / LK_EXCHANGE_ALIGN;
        t->buffers[r] = calloc((size_t)n + 1, sizeof(float));
        assert_non_null(t->buffers[r]);
        for (int64_t i = 0; i < n; i++)
            t->buffers[r][i] = NAN;
    }
    for (int m = 0, position = 0; m < t->opts.n_nodes; m++) {
        position = m > 0 && nodes[m].rank == nodes[m - 1].rank ? position + 1 : 0;
        t->values[m] = calloc((size_t)t->units + 1, sizeof(float));
        assert_non_null(t->values[m]);
        for (int64_t i = 0; i < t->units; i++)
            t->values[m][i] = random_value();
        if (!t->opts.in_place)
            memcpy(t->buffers[nodes[m].rank] + position * t->units, t->values[m], (size_t)t->units * sizeof(float));
    }
}

static void release(trial *t)
{
    for (int r = 0; r < t->opts.ranks && t->buffers; r++)
        free(t->buffers[r]);
    for (int m = 0; m < t->opts.n_nodes && t->values; m++)
        free(t->values[m]);
    free(t->buffers);
    free(t->values);
    lk__exchange_plan_release(t->plan);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static float *place_of(const trial *t, int rank, lk_exchange_place place)
{
    assert_int_equal(place.begin % LK_EXCHANGE_ALIGN, 0);
    if (place.node < 0)
        return t->buffers[rank] + place.begin / LK_EXCHANGE_ALIGN;
    assert_int_equal(nodes[place.node].rank, rank);
    return t->values[place.node] + place.begin / LK_EXCHANGE_ALIGN;
}

/* backward: the transfers of a step in another order. They must not depend on each other. */
static void run_transfers(const trial *t, const lk_exchange_step *step, bool backward)
{
    for (int i = 0; i < step->n_transfers; i++) {
        int at = step->first_transfer + (backward ? step->n_transfers - 1 - i : i);
        const lk_exchange_transfer *move = &t->plan->transfers[at];
        int64_t n = (move->words.end - move->words.begin) / LK_EXCHANGE_ALIGN;
        assert_true(n > 0 && move->from != move->to);
        memcpy(place_of(t, move->to, (lk_exchange_place){-1, move->target}), place_of(t, move->from, move->source),
               (size_t)n * sizeof(float));
    }
}

static void run_sum(const trial *t, const lk_exchange_sum *sum)
{
    int64_t n = (sum->words.end - sum->words.begin) / LK_EXCHANGE_ALIGN;
    assert_true(n > 0);
    for (int64_t i = 0; i < n; i++) {
        float stack[LK_LINKS_LEVELS + 1];
        int depth = 0;
        for (int a = 0; a < sum->count; a++) {
            assert_true(depth <= LK_LINKS_LEVELS);
            stack[depth++] = place_of(t, sum->rank, t->plan->addends[sum->first + a])[i];
            for (int more = t->plan->additions[sum->first + a]; more > 0; more--, depth--)
                stack[depth - 2] += stack[depth - 1];
        }
        assert_int_equal(depth, 1);
        place_of(t, sum->rank, (lk_exchange_place){-1, sum->target})[i] = stack[0];
    }
}

/* Adds up element i along the tree over `range`. Returns false if no node has a value. */
static bool tree_sum(const trial *t, lk_range range, int first, int end, int64_t i, float *sum)
{
    float left, right;
    if (first == end)
        return false;
    if (end - first == 1) {
        *sum = t->values[first][i];
        return true;
    }
    int64_t middle = lk__tree_middle(range);
    int split = first;
    while (split < end && nodes[split].range.end <= middle)
        split++;
    bool has_left = tree_sum(t, (lk_range){range.begin, middle}, first, split, i, &left);
    bool has_right = tree_sum(t, (lk_range){middle, range.end}, split, end, i, &right);
    *sum = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

static void expect_sums(const trial *t)
{
    lk_range root = {0, owned[t->opts.ranks - 1].end};
    for (int64_t i = 0; i < t->units; i++) {
        float expected;
        if (!tree_sum(t, root, 0, t->opts.n_nodes, i, &expected))
            return;
        for (int r = 0; r < t->opts.ranks; r++) {
            int own = 0;
            for (int m = 0; m < t->opts.n_nodes && t->opts.ranks <= 64; m++)
                own += nodes[m].rank == r;
            if (t->opts.ranks > 64 && !t->opts.in_place)
                fail_msg("many ranks are tried in place");
            int64_t begin = lk__exchange_sum_begin(own, t->opts.row, t->opts.in_place) / LK_EXCHANGE_ALIGN;
            if (memcmp(&t->buffers[r][begin + i], &expected, sizeof expected) != 0)
                fail_msg("%d ranks, %lld shards, flat %d: element %lld on rank %d is %g, not %g", t->opts.ranks,
                         (long long)root.end, t->opts.flat, (long long)i, r, (double)t->buffers[r][begin + i],
                         (double)expected);
        }
    }
}

static void run(trial *t, bool backward)
{
    fill_memory(t);
    for (int s = 0; s < t->plan->n_steps; s++) {
        const lk_exchange_step *step = &t->plan->steps[s];
        run_transfers(t, step, backward);
        for (int i = 0; i < step->n_sums; i++)
            run_sum(t, &t->plan->sums[step->first_sum + i]);
        assert_true(s < t->plan->reducing || step->n_sums == 0);
    }
    expect_sums(t);
}

static trial trial_of(int ranks, int64_t shards, int percent_present, int64_t units, int flat)
{
    return (trial){.opts = {.owned = owned,
                            .ranks = ranks,
                            .nodes = nodes,
                            .n_nodes = list_nodes(ranks, shards, percent_present),
                            .row = units * LK_EXCHANGE_ALIGN,
                            .in_place = true,
                            .flat = flat,
                            .n = ranks}};
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* Along the tree, flat and between the two; with values of all nodes, of some and of few. */
static void every_number_of_ranks_adds_up_the_tree(void **state)
{
    (void)state;
    static const int presences[] = {100, 100, 60, 10};
    int64_t sums = 0;
    for (int ranks = 1; ranks <= 33; ranks++) {
        for (int i = 0; i < 64; i++) {
            int64_t shards = ranks + below(5 * ranks);
            if (i % 2 == 0)
                own_parts(ranks, shards);
            else
                own_any(ranks, shards);
            int flat = i % 8 < 4 ? 2 : (int)lk__max(2, below(ranks + 1));
            trial t = trial_of(ranks, shards, presences[i % 4], 1 + below(3 * ranks), flat);
            if (t.opts.n_nodes > LK_LINKS_ADDENDS)
                t.opts.flat = 2;
            t.opts.whole = i / 4 % 3 == 0;
            t.opts.in_place = i / 8 % 2 == 0;
            make_plan(&t);
            run(&t, i / 16 % 2 == 0);
            sums += t.opts.n_nodes > 0;
            release(&t);
        }
    }
    assert_true(sums > 33 * 60);
}

static void many_ranks_add_up_the_tree(void **state)
{
    (void)state;
    static const int numbers[] = {64, 100, 255, 513, 1000, 1024};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (int whole = 0; whole < 2; whole++) {
            int ranks = numbers[i];
            int64_t shards = whole ? ranks : ranks + below(2 * ranks);
            own_parts(ranks, shards);
            trial t = trial_of(ranks, shards, whole ? 90 : 100, whole ? 3 : ranks + below(ranks), 2);
            t.opts.whole = whole;
            make_plan(&t);
            run(&t, whole);
            release(&t);
        }
    }
}

/* The cost of a plan for the rank that it costs most. */
typedef struct cost {
    int64_t steps, messages, words; /* messages: sent or received in one step; words: received in all steps */
} cost;

static cost cost_of(const trial *t)
{
    static int64_t sent[MAX_RANKS], received[MAX_RANKS], words[MAX_RANKS];
    cost most = {.steps = t->plan->n_steps};
    memset(words, 0, sizeof words);
    for (int s = 0; s < t->plan->n_steps; s++) {
        const lk_exchange_step *step = &t->plan->steps[s];
        memset(sent, 0, sizeof sent);
        memset(received, 0, sizeof received);
        for (int i = step->first_transfer; i < step->first_transfer + step->n_transfers; i++) {
            const lk_exchange_transfer *move = &t->plan->transfers[i];
            sent[move->from]++;
            received[move->to]++;
            words[move->to] += move->words.end - move->words.begin;
        }
        for (int r = 0; r < t->opts.ranks; r++)
            most.messages = lk__max(most.messages, lk__max(sent[r], received[r]));
    }
    for (int r = 0; r < t->opts.ranks; r++)
        most.words = lk__max(most.words, words[r]);
    return most;
}

static int64_t log2_up(int64_t n)
{
    int64_t bits = 0;
    while (((int64_t)1 << bits) < n)
        bits++;
    return bits;
}

/* As many words are moved as by a ring if every rank owns a node of the tree. */
static void powers_of_two_halve_and_double(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 1024; ranks *= 2) {
        own_parts(ranks, 2 * ranks);
        trial t = trial_of(ranks, 2 * ranks, 100, 4 * ranks, 2);
        make_plan(&t);
        cost c = cost_of(&t);
        assert_int_equal(c.steps, 2 * log2_up(ranks));
        assert_int_equal(c.messages, 1);
        assert_int_equal(c.words, 2 * t.opts.row / ranks * (ranks - 1));
        release(&t);

        t = trial_of(ranks, 2 * ranks, 100, 1, 2);
        t.opts.whole = true;
        make_plan(&t);
        c = cost_of(&t);
        assert_int_equal(c.steps, log2_up(ranks));
        assert_int_equal(c.messages, 1);
        assert_int_equal(c.words, log2_up(ranks) * t.opts.row);
        release(&t);
    }
}

static void other_numbers_need_few_steps_and_messages(void **state)
{
    (void)state;
    double most_words = 0;
    int64_t most_messages = 0, most_steps = 0;
    for (int ranks = 2; ranks <= 1024; ranks += 1 + ranks / 16) {
        int64_t shards = lk__max(8, (int64_t)1 << log2_up(ranks));
        own_parts(ranks, shards);
        trial t = trial_of(ranks, shards, 100, 16 * ranks, 2);
        make_plan(&t);
        cost c = cost_of(&t);
        most_steps = lk__max(most_steps, c.steps - 2 * log2_up(ranks));
        most_messages = lk__max(most_messages, c.messages);
        most_words = fmax(most_words, (double)c.words / (double)t.opts.row);
        release(&t);
    }
    print_message("at most %lld steps beyond 2 log2 k, %lld messages a step, %.2f rows received\n",
                  (long long)most_steps, (long long)most_messages, most_words);
    assert_true(most_steps <= 0);
    assert_true(most_messages <= 4);
    assert_true(most_words < 3.6);
}

static void a_flat_exchange_has_two_steps(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 32; ranks++) {
        own_parts(ranks, ranks);
        trial t = trial_of(ranks, ranks, 100, ranks, ranks);
        make_plan(&t);
        cost c = cost_of(&t);
        assert_int_equal(c.steps, 2);
        assert_int_equal(c.messages, ranks - 1);
        assert_int_equal(c.words, 2 * t.opts.row / ranks * (ranks - 1));
        for (int r = 0; r < ranks; r++)
            assert_int_equal(t.plan->slices[r].begin, r * t.opts.row / ranks);
        release(&t);
    }
}

/* Two ranks match messages by their order, so a process must list what concerns it in the order of the whole plan. */
static void processes_list_their_part(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        int ranks = 2 + (int)below(20);
        int64_t shards = ranks + below(3 * ranks);
        own_parts(ranks, shards);
        trial all = trial_of(ranks, shards, i % 3 ? 100 : 50, 1 + below(100), i % 2 ? 2 : ranks), part = all;
        all.opts.whole = part.opts.whole = i % 5 == 0;
        part.opts.first = (int)below(ranks);
        part.opts.n = 1 + (int)below(ranks - part.opts.first);
        make_plan(&all);
        make_plan(&part);
        assert_int_equal(part.plan->n_steps, all.plan->n_steps);
        for (int s = 0; s < all.plan->n_steps; s++) {
            int next = part.plan->steps[s].first_transfer, end = next + part.plan->steps[s].n_transfers;
            const lk_exchange_step *step = &all.plan->steps[s];
            for (int a = step->first_transfer; a < step->first_transfer + step->n_transfers; a++) {
                const lk_exchange_transfer *want = &all.plan->transfers[a], *have = &part.plan->transfers[next];
                bool sends = want->from >= part.opts.first && want->from < part.opts.first + part.opts.n;
                bool receives = want->to >= part.opts.first && want->to < part.opts.first + part.opts.n;
                if (!sends && !receives)
                    continue;
                assert_true(next++ < end);
                assert_true(have->from == want->from && have->to == want->to && have->before == want->before);
                assert_true(have->words.begin == want->words.begin && have->words.end == want->words.end);
                assert_true(!sends ||
                            (have->source.node == want->source.node && have->source.begin == want->source.begin));
                assert_true(!receives || have->target == want->target);
            }
            assert_int_equal(next, end);
        }
        release(&all);
        release(&part);
    }
}

static void too_many_nodes_at_once_are_refused(void **state)
{
    (void)state;
    int ranks = LK_LINKS_ADDENDS + 1;
    own_parts(ranks, ranks);
    trial t = trial_of(ranks, ranks, 100, 1, ranks);
    expect_error(lk__exchange_plan_new(&t.opts, &t.plan), LK_ERR_UNSUPPORTED,
                 "allreduce: more than 64 nodes of the tree at once");
    t.opts.flat = 2;
    assert_ok(lk__exchange_plan_new(&t.opts, &t.plan));
    release(&t);
}

/* Runs a plan without nodes; has[rank][word]. Each rank has its slice before, and receives each other word once. */
static void gather_slices(int ranks, int flat, int64_t row)
{
    lk_exchange_plan *plan;
    own_parts(ranks, ranks);
    lk_exchange_plan_opts opts = {
        .owned = owned, .ranks = ranks, .row = row, .in_place = true, .flat = flat, .n = ranks};
    assert_ok(lk__exchange_plan_new(&opts, &plan));
    bool *has = calloc((size_t)(ranks * row), sizeof *has);
    assert_non_null(has);
    int64_t missing = (int64_t)(ranks - 1) * row;
    for (int r = 0; r < ranks; r++) {
        lk_range slice = lk__exchange_slice(row, r, ranks);
        for (int64_t i = slice.begin; i < slice.end; i++)
            has[r * row + i] = true;
    }
    for (int s = 0; s < plan->n_steps; s++) {
        assert_int_equal(plan->steps[s].n_sums, 0);
        for (int t = 0; t < plan->steps[s].n_transfers; t++) {
            const lk_exchange_transfer *move = &plan->transfers[plan->steps[s].first_transfer + t];
            assert_true(move->source.node < 0 && !move->cut);
            assert_true(move->source.begin == move->words.begin && move->target == move->words.begin);
            for (int64_t i = move->words.begin; i < move->words.end; i++, missing--) {
                assert_true(has[move->from * row + i] && !has[move->to * row + i]);
                has[move->to * row + i] = true;
            }
        }
    }
    assert_int_equal(missing, 0);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(plan->words[r], row);
    free(has);
    lk__exchange_plan_release(plan);
}

static void without_nodes_slices_are_gathered(void **state)
{
    (void)state;
    static const int64_t rows[] = {16, 64, 1008, 4096};
    for (int ranks = 2; ranks <= 33; ranks++)
        for (int i = 0; i < 4; i++) {
            gather_slices(ranks, ranks, rows[i]);
            gather_slices(ranks, 2, rows[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks_adds_up_the_tree),
        cmocka_unit_test(many_ranks_add_up_the_tree),
        cmocka_unit_test(powers_of_two_halve_and_double),
        cmocka_unit_test(other_numbers_need_few_steps_and_messages),
        cmocka_unit_test(a_flat_exchange_has_two_steps),
        cmocka_unit_test(processes_list_their_part),
        cmocka_unit_test(too_many_nodes_at_once_are_refused),
        cmocka_unit_test(without_nodes_slices_are_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
