#include "train/parameter_server/placement.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "dist/service/requests.h"
#include "lockstep/dist.h"

#include <stdlib.h>
#include <string.h>

static int64_t placement_padded_count(int64_t count)
{
    return (count + LK_PLACEMENT_STEP - 1) / LK_PLACEMENT_STEP * LK_PLACEMENT_STEP;
}

typedef struct sized {
    int64_t count;
    int variable;
} sized;

static int placement_compare_sizes(const void *a, const void *b)
{
    const sized *left = a, *right = b;
    if (left->count != right->count)
        return left->count > right->count ? -1 : 1;
    return left->variable - right->variable;
}

static int placement_compare_parts(const void *a, const void *b)
{
    const lk_placement_part *left = a, *right = b;
    if (left->server != right->server)
        return left->server - right->server;
    if (left->variable != right->variable)
        return left->variable - right->variable;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

static int placement_least_loaded(const int64_t *load, int servers)
{
    int least = 0;
    for (int s = 1; s < servers; s++)
        if (load[s] < load[least])
            least = s;
    return least;
}

static void placement_add(lk_placement *p, int64_t *load, lk_placement_part part)
{
    p->parts[p->n++] = part;
    load[part.server] += placement_padded_count(part.count);
}

/* Divides the steps of a variable evenly. Its last part may be smaller, because the last step may be incomplete. */
static void placement_split(lk_placement *p, int64_t *load, sized variable)
{
    int64_t steps = placement_padded_count(variable.count) / LK_PLACEMENT_STEP;
    for (int s = 0; s < p->servers; s++) {
        lk_range range = lk_part(steps, p->servers, s);
        int64_t begin = range.begin * LK_PLACEMENT_STEP, end = lk__min(range.end * LK_PLACEMENT_STEP, variable.count);
        placement_add(p, load, (lk_placement_part){variable.variable, s, begin, end - begin, 0});
    }
}

static void placement_assign(lk_placement *p, const sized *order, int variables, int64_t extra)
{
    int64_t load[LK_MAX_SERVERS] = {0};
    for (int i = 0; i < variables; i++) {
        if (p->servers > 1 && order[i].count > LK_PLACEMENT_WHOLE)
            placement_split(p, load, order[i]);
        else
            placement_add(
                p, load,
                (lk_placement_part){order[i].variable, placement_least_loaded(load, p->servers), 0, order[i].count, 0});
    }
    p->extra_server = placement_least_loaded(load, p->servers);
    p->extra[p->extra_server] = extra;
}

static void placement_lay_out(lk_placement *p)
{
    int server = 0;
    qsort(p->parts, (size_t)p->n, sizeof *p->parts, placement_compare_parts);
    for (int i = 0; i < p->n; i++) {
        lk_placement_part *part = &p->parts[i];
        while (server < part->server)
            p->first[++server] = i;
        part->at = p->elements[server];
        p->elements[server] += placement_padded_count(part->count);
    }
    while (server < p->servers)
        p->first[++server] = p->n;
}

lk_status lk__placement_new(const int64_t *counts, int variables, int64_t extra, int servers, lk_placement *placement)
{
    memset(placement, 0, sizeof *placement);
    if (variables < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "parameter-server: there are no variables");
    if (servers < 1 || servers > LK_MAX_SERVERS)
        LK_FAIL(LK_ERR_ARGUMENT, "parameter-server: %d servers; 1 to %d are possible", servers, LK_MAX_SERVERS);
    sized *order = lk__calloc((size_t)variables, sizeof *order);
    placement->parts = lk__calloc((size_t)variables * (size_t)servers, sizeof *placement->parts);
    if (order && placement->parts) {
        for (int i = 0; i < variables; i++)
            order[i] = (sized){counts[i], i};
        qsort(order, (size_t)variables, sizeof *order, placement_compare_sizes);
        placement->servers = servers;
        placement_assign(placement, order, variables, extra);
        placement_lay_out(placement);
    }
    lk_status status = order && placement->parts ? LK_OK : LK_ERR_MEMORY;
    lk__free(order);
    if (status != LK_OK)
        lk__placement_free(placement);
    return status;
}

/* Sets *most to the elements of the server that has the most. */
static lk_status placement_find_most(const int64_t *counts, int variables, int servers, int64_t *most)
{
    lk_placement placement;
    LK_TRY(lk__placement_new(counts, variables, 0, servers, &placement));
    *most = 0;
    for (int s = 0; s < servers; s++)
        *most = lk__max(*most, placement.elements[s]);
    lk__placement_free(&placement);
    return LK_OK;
}

lk_status lk__placement_check_frames(const int64_t *counts, int variables, int servers, int slots)
{
    const int64_t element_bytes = (int64_t)sizeof(float) * lk__max(slots, 1), fits = LK_MAX_FRAME_BYTES / element_bytes;
    int64_t most, least;
    int enough = servers;
    LK_TRY(placement_find_most(counts, variables, servers, &most));
    if (most <= fits)
        return LK_OK;
    for (least = most; least > fits && enough < LK_MAX_SERVERS;)
        LK_TRY(placement_find_most(counts, variables, ++enough, &least));
    LK_FAIL(LK_ERR_ARGUMENT,
            "--servers %d: one would have %lld elements of the parameters, and a message takes %lld%s; "
            "%s--servers %d would do",
            servers, (long long)most, (long long)fits, slots > 1 ? " with the optimizer's state" : "",
            least > fits ? "not even " : "", enough);
}

void lk__placement_free(lk_placement *placement)
{
    lk__free(placement->parts);
    memset(placement, 0, sizeof *placement);
}
