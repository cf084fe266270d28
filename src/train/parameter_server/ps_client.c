#include "train/parameter_server/ps_client.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "train/parameter_server/ps_chief_call.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* LOOK: milliseconds between two polls of a server that does not answer. LOOKS: after so many polls a request is sent
 * again, because the connection may have been lost although the server was not. */
enum { LOOK = 20, LOOKS = 500 };

typedef struct link {
    lk_ps_server_location location;
    lk_peer *peer;  /* NULL: not connected */
    int connection; /* number of the current connection */
    int asked;      /* number of the connection over which the current request was sent */
    float *packed;  /* [elements]: the variables pulled, or the gradients to push */
    float *state;   /* [slots * elements]: optimizer state pulled; NULL: never asked for */
    lk_mail *mail;  /* the answer, while it is being read */
    lk_ps_variables pulled;
    lk_ps_variables timed; /* the answer to an empty pull */
} link;

struct lk_ps_client {
    lk_post *post;
    const lk_ps_layout *layout;
    uint64_t run, number;
    const lk_ps_directory *directory;
    int servers, generation;
    link *links;
    lk_ps_server_location *locations; /* scratch */
    float *running, *scratch;
    double *sums;
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static lk_status ps_client_allocate(lk_ps_client *c)
{
    const lk_placement *p = &c->layout->placement;
    size_t statistics = (size_t)c->layout->statistics + 1;
    c->links = lk__calloc((size_t)c->servers, sizeof *c->links);
    c->locations = lk__calloc((size_t)c->servers, sizeof *c->locations);
    c->running = lk__calloc(statistics, sizeof *c->running);
    c->sums = lk__calloc(statistics, sizeof *c->sums);
    c->scratch = lk__calloc((size_t)lk__ps_layout_largest(c->layout), sizeof *c->scratch);
    if (!c->links || !c->locations || !c->running || !c->sums || !c->scratch)
        return LK_ERR_MEMORY;
    for (int s = 0; s < c->servers; s++) {
        c->links[s].packed = lk__calloc((size_t)p->elements[s], sizeof(float));
        if (!c->links[s].packed)
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

lk_status lk__ps_client_new(lk_post *post, const lk_ps_layout *layout, uint64_t run, const lk_ps_directory *directory,
                            lk_ps_client **client)
{
    lk_ps_client *c = lk__calloc(1, sizeof *c);
    *client = c;
    if (!c)
        return LK_ERR_MEMORY;
    *c = (lk_ps_client){.post = post, .layout = layout, .run = run, .directory = directory, .generation = -1};
    c->servers = layout->placement.servers;
    return ps_client_allocate(c);
}

void lk__ps_client_release(lk_ps_client *c)
{
    if (!c)
        return;
    for (int s = 0; c->links && s < c->servers; s++) {
        lk__peer_release(c->links[s].peer);
        lk__mail_release(c->links[s].mail);
        lk__free(c->links[s].packed);
        lk__free(c->links[s].state);
    }
    LK_FREE_ALL(c->links, c->locations, c->running, c->sums, c->scratch, c);
}

int64_t lk__ps_client_version(const lk_ps_client *c, int server)
{
    return c->links[server].pulled.version;
}

double lk__ps_client_update_seconds(const lk_ps_client *c, int server)
{
    const lk_ps_variables *said = &c->links[server].timed;
    return said->timed > 0 && said->seconds > 0 ? said->seconds / (double)said->timed : NAN;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

/* Connects to a server that has another address or is another process than before. */
static lk_status ps_client_follow_link(lk_ps_client *c, link *l, const lk_ps_server_location *location)
{
    lk_cluster_address named;
    lk_address address;
    if (!location->is_there || (l->peer && location->incarnation == l->location.incarnation))
        return LK_OK;
    if (!lk__cluster_read_address(location->address, &named))
        LK_FAIL(LK_ERR_FORMAT, "the chief gives '%.60s' as a server's address", location->address);
    LK_TRY(lk__address_resolve("a parameter server", &named, &address));
    lk__peer_release(l->peer);
    l->peer = NULL;
    l->location = *location;
    l->connection++;
    return lk__peer_open(c->post, &address, *location->key ? location->key : NULL, &l->peer);
}

static lk_status ps_client_follow_servers(lk_ps_client *c)
{
    if (c->generation == c->directory->generation(c->directory->user))
        return LK_OK;
    int generation;
    LK_TRY(c->directory->look_up(c->directory->user, c->locations, &generation));
    for (int s = 0; s < c->servers; s++)
        LK_TRY(ps_client_follow_link(c, &c->links[s], &c->locations[s]));
    c->generation = generation;
    return LK_OK;
}

/* --- a request to all servers ------------------------------------------------------------------------------------- */

typedef struct request {
    /* Fills in the frames to send to a server. */
    void (*describe)(const lk_ps_client *c, int server, const void *user, lk_wire_first *first, lk_frame *frames,
                     int *n);
    /* Takes the server's answer, which is in its link. */
    lk_status (*take)(lk_ps_client *c, int server, void *user);
    void *user;
} request;

static lk_status ps_client_send(lk_ps_client *c, int server, const request *r, uint64_t number)
{
    lk_wire_first first;
    lk_frame frames[LK_MAX_FRAMES];
    int n;
    c->links[server].asked = c->links[server].connection;
    if (!c->links[server].peer)
        return LK_OK;
    r->describe(c, server, r->user, &first, frames, &n);
    first.header.number = number;
    return lk__peer_send(c->links[server].peer, frames, n);
}

/* Receives the answer to `number`, if it comes within LOOK; drops older answers. */
static lk_status ps_client_receive(link *l, uint64_t number)
{
    lk_wire_header header;
    lk_mail *mail;
    if (!l->peer)
        return LK_OK;
    LK_TRY(lk__peer_receive(l->peer, LOOK, &mail));
    if (!mail)
        return LK_OK;
    lk_status status = lk__wire_header(mail, &header);
    if (status == LK_OK && header.number == number && header.kind == LK_PS_REFUSED)
        status = lk__ps_refused("a parameter server", mail);
    if (status == LK_OK && header.number == number)
        l->mail = mail;
    else
        lk__mail_release(mail);
    return status;
}

static lk_status ps_client_await(lk_ps_client *c, int server, const request *r, uint64_t number)
{
    link *l = &c->links[server];
    for (int looks = 1; !l->mail; looks++) {
        lk__activity_remain(LK_ACTIVITY_WAIT_REMOTE, "wait for a parameter server");
        LK_TRY(ps_client_receive(l, number));
        if (l->mail)
            break;
        if (!l->peer) /* without a connection the receive does not wait */
            nanosleep(&(struct timespec){.tv_nsec = LOOK * 1000000L}, NULL);
        LK_TRY(c->directory->check(c->directory->user));
        LK_TRY(ps_client_follow_servers(c));
        if (l->asked != l->connection || looks % LOOKS == 0)
            LK_TRY(ps_client_send(c, server, r, number));
    }
    lk__activity_set(LK_ACTIVITY_WORK, "training");
    lk_status status = r->take(c, server, r->user);
    lk__mail_release(l->mail);
    l->mail = NULL;
    return status;
}

static lk_status ps_client_ask_all(lk_ps_client *c, const request *r)
{
    uint64_t number = ++c->number;
    LK_TRY(ps_client_follow_servers(c));
    for (int s = 0; s < c->servers; s++)
        LK_TRY(ps_client_send(c, s, r, number));
    for (int s = 0; s < c->servers; s++)
        LK_TRY(ps_client_await(c, s, r, number));
    return LK_OK;
}

/* --- pull --------------------------------------------------------------------------------------------------------- */

typedef struct pulling {
    lk_ps_pull pull;
    int n_slots; /* kinds of optimizer state to pull too */
} pulling;

static void ps_client_describe_pull(const lk_ps_client *c, int server, const void *user, lk_wire_first *first,
                                    lk_frame *frames, int *n)
{
    (void)server;
    lk_ps_pull pull = ((const pulling *)user)->pull;
    pull.run = c->run;
    frames[0] = lk__wire_first(first, LK_PS_PULL, 0, &pull, sizeof pull);
    *n = 1;
}

/* user: a pulling. */
static lk_status ps_client_take_variables(lk_ps_client *c, int server, void *user)
{
    link *l = &c->links[server];
    const void *packed, *running, *state;
    size_t bytes = (size_t)c->layout->placement.elements[server] * sizeof(float),
           extra = (size_t)lk__ps_layout_statistics(c->layout, server) * sizeof(float),
           slots = (size_t)((pulling *)user)->n_slots * bytes;
    LK_TRY(lk__wire_body(l->mail, LK_PS_VARIABLES, "variables", &l->pulled, sizeof l->pulled, 3, 3));
    LK_TRY(lk__wire_frame(l->mail, 0, "variables", bytes, &packed));
    LK_TRY(lk__wire_frame(l->mail, 1, "variables", extra, &running));
    LK_TRY(lk__wire_frame(l->mail, 2, "variables", slots, &state));
    memcpy(l->packed, packed, bytes);
    if (extra > 0)
        memcpy(c->running, running, extra);
    if (slots > 0)
        memcpy(l->state, state, slots);
    return LK_OK;
}

/* Takes the answer to an empty pull. */
static lk_status ps_client_take_times(lk_ps_client *c, int server, void *user)
{
    (void)user;
    link *l = &c->links[server];
    return lk__wire_body(l->mail, LK_PS_VARIABLES, "variables", &l->timed, sizeof l->timed, 3, 3);
}

lk_status lk__ps_client_pull_nothing(lk_ps_client *c, bool is_timed)
{
    pulling p = {.pull = {.batch = -1, .is_empty = 1, .is_timed = is_timed}};
    request r = {.describe = ps_client_describe_pull, .take = ps_client_take_times, .user = &p};
    return ps_client_ask_all(c, &r);
}

static lk_status ps_client_allocate_state(lk_ps_client *c, int n_slots)
{
    for (int s = 0; s < c->servers && n_slots > 0; s++) {
        size_t elements = (size_t)n_slots * (size_t)c->layout->placement.elements[s];
        if (!c->links[s].state)
            c->links[s].state = lk__calloc(elements, sizeof(float));
        if (!c->links[s].state)
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

static lk_status ps_client_pull_into(lk_ps_client *c, pulling *p, lk_tensor *const *const *sets, int n_sets)
{
    const float *packed[LK_MAX_SERVERS];
    request r = {.describe = ps_client_describe_pull, .take = ps_client_take_variables, .user = p};
    LK_TRY(ps_client_ask_all(c, &r));
    for (int s = 0; s < c->servers; s++)
        packed[s] = c->links[s].packed;
    return lk__ps_layout_write(c->layout, sets, n_sets, packed, c->running, c->scratch);
}

lk_status lk__ps_client_pull(lk_ps_client *c, int64_t batch, lk_tensor *const *const *sets, int n_sets)
{
    pulling p = {.pull = {.batch = batch}};
    return ps_client_pull_into(c, &p, sets, n_sets);
}

lk_status lk__ps_client_pull_all(lk_ps_client *c, lk_tensor *const *const *sets, int n_sets,
                                 lk_tensor *const *const *state, int n_slots)
{
    const float *packed[LK_MAX_SERVERS];
    pulling p = {.pull = {.batch = -1, .with_state = n_slots > 0}, .n_slots = n_slots};
    LK_TRY(ps_client_allocate_state(c, n_slots));
    LK_TRY(ps_client_pull_into(c, &p, sets, n_sets));
    for (int slot = 0; slot < n_slots; slot++) {
        for (int s = 0; s < c->servers; s++)
            packed[s] = c->links[s].state + slot * c->layout->placement.elements[s];
        LK_TRY(lk__ps_layout_write_parameters(c->layout, &state[slot], 1, packed, c->scratch));
    }
    return LK_OK;
}

/* --- push --------------------------------------------------------------------------------------------------------- */

/* The bits of numbers without a sign are in the order of the numbers, and those of NaN come last. */
static float ps_client_largest(const float *values, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        largest = lk__max(largest, bits & INT32_MAX);
    }
    float number;
    memcpy(&number, &largest, sizeof number);
    return isfinite(number) ? number : INFINITY;
}

lk_status lk__ps_client_load(lk_ps_client *c, lk_tensor *const *values, float *largest)
{
    float *packed[LK_MAX_SERVERS];
    for (int s = 0; s < c->servers; s++)
        packed[s] = c->links[s].packed;
    LK_TRY(lk__ps_layout_gradients(c->layout, values, packed, c->sums, c->scratch));
    *largest = 0;
    for (int s = 0; s < c->servers; s++)
        *largest = fmaxf(*largest, ps_client_largest(packed[s], c->layout->placement.elements[s]));
    return LK_OK;
}

typedef struct pushing {
    const lk_ps_push *push;
    bool is_empty;
    lk_ps_push_result *result;
} pushing;

static void ps_client_describe_push(const lk_ps_client *c, int server, const void *user, lk_wire_first *first,
                                    lk_frame *frames, int *n)
{
    const pushing *p = user;
    const link *l = &c->links[server];
    bool sends = !p->is_empty && !p->push->is_skipped;
    lk_ps_push push = *p->push;
    push.run = c->run;
    push.incarnation = l->pulled.incarnation;
    push.version = l->pulled.version;
    frames[0] = lk__wire_first(first, LK_PS_PUSH, 0, &push, sizeof push);
    frames[1] = (lk_frame){l->packed, sends ? (size_t)c->layout->placement.elements[server] * sizeof(float) : 0};
    frames[2] = (lk_frame){c->sums, sends ? (size_t)lk__ps_layout_statistics(c->layout, server) * sizeof(double) : 0};
    *n = 3;
}

static lk_status ps_client_take_pushed(lk_ps_client *c, int server, void *user)
{
    lk_ps_push_result *result = ((pushing *)user)->result;
    lk_ps_pushed pushed;
    LK_TRY(lk__wire_body(c->links[server].mail, LK_PS_PUSHED, "pushed", &pushed, sizeof pushed, 0, 0));
    result->repeated += pushed.status == LK_PS_REPEATED;
    result->too_stale += pushed.status == LK_PS_TOO_STALE;
    if (pushed.status == LK_PS_APPLIED || pushed.status == LK_PS_HELD)
        result->staleness = lk__max(result->staleness, pushed.staleness);
    return LK_OK;
}

lk_status lk__ps_client_push(lk_ps_client *c, const lk_ps_push *push, bool is_empty, lk_ps_push_result *result)
{
    pushing p = {push, is_empty, result};
    request r = {.describe = ps_client_describe_push, .take = ps_client_take_pushed, .user = &p};
    *result = (lk_ps_push_result){0};
    return ps_client_ask_all(c, &r);
}
