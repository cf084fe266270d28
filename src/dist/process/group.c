#include "dist/process/group.h"

#include "base/abandon.h"
#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/plugin.h"
#include "base/status.h"
#include "dist/process/group_notes.h"
#include "dist/process/shared_messages.h"
#include "lockstep/dist.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef char host_name[LK_MESSAGES_HOST];

struct lk_group {
    const lk_messages *table;
    int rank, ranks;
    host_name *hosts; /* [ranks] */
    bool has_core;    /* the machine has a core for each of its ranks */
    bool spans_machines;
    lk_notes notes;
    atomic_bool has_notes; /* the process has joined and not left */
};

/* A process can join once and leave once. */
static lk_group the_group;
static bool is_open, has_left;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static const lk_plugin plugin = {
    .file = "liblockstep_mpi.so",
    .variable = "LOCKSTEP_MPI_PLUGIN",
    .subject = "MPI",
    .symbol = LK_MESSAGES_SYMBOL,
};

/* --- giving up ---------------------------------------------------------------------------------------------------- */

void lk__group_give_up(lk_group *group, lk_status status, const char *why)
{
    if (atomic_load(&group->has_notes))
        lk__notes_give_up(&group->notes, status, why);
}

void lk__processes_give_up(lk_status status)
{
    lk__group_give_up(&the_group, status, lk_error_message());
}

/* Fails with the error of the rank that gave up, the same on all ranks. */
static lk_status group_fail_as_noted(const lk_group *group)
{
    const lk_note *note = &group->notes.first;
    lk_status status = (lk_status)note->status;
    if (note->rank == group->rank)
        LK_FAIL(status, "%s", note->text);
    bool is_known = group->hosts && note->rank >= 0 && note->rank < group->ranks && *group->hosts[note->rank];
    LK_FAIL(status, "rank %d%s%s gave up: %s", note->rank, is_known ? " on " : "",
            is_known ? group->hosts[note->rank] : "", note->text);
}

lk_status lk__group_check(const lk_group *group)
{
    return lk__notes_are_bad(&group->notes) ? group_fail_as_noted(group) : LK_OK;
}

lk_status lk__group_look(lk_group *group)
{
    return atomic_load(&group->has_notes) && lk__notes_look(&group->notes) ? group_fail_as_noted(group) : LK_OK;
}

/* If one rank skips an operation, all must fail; otherwise the others would match the wrong message. */
static lk_status group_give_up_on_error(lk_group *group, lk_status status)
{
    if (status != LK_OK)
        lk__group_give_up(group, status, lk_error_message());
    return status;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static lk_status group_begin_message(const lk_group *group, lk_channel channel, const lk_group_message *m,
                                     lk_message *message)
{
    char error[LK_MESSAGES_ERROR];
    int other = m->to_all && m->is_sent ? group->rank : m->other;
    if (group->table->begin(m->is_sent, m->to_all ? LK_CHANNEL_TO_ALL : channel, other, m->data, m->bytes, message,
                            error) != LK_MESSAGES_OK)
        LK_FAIL(LK_ERR_BACKEND, "rank %d: %s", group->rank, error);
    return LK_OK;
}

/* Pauses between two polls, `waited` nanoseconds after the wait began, and `quiet` after a message came. If the other
 * rank has a core, a short message arrives within SPIN, and what else it sends or takes follows the first one soon,
 * while a yield may give this core away for milliseconds. Messages make progress only while somebody polls, so then the
 * thread only yields, until AWAKE; if a yield takes longer than SHORT, or than TURNS where other ranks take turns on
 * this core, a device computes there, and the thread also sleeps, to leave it the core. After AWAKE the other rank must
 * be computing, so the thread sleeps between polls. */
static void group_pause_between_polls(const lk_group *group, int64_t waited, int64_t quiet)
{
    enum { SPIN = 50000, AWAKE = 2000000, SLEEP = 50000, LONG_SLEEP = 200000 }; /* nanoseconds */
    enum { SHORT = 20000, TURNS = 200000 };
    int64_t began = lk__nanoseconds();
    if (group->has_core && (waited < SPIN || quiet < AWAKE))
        return;
    if (waited < AWAKE)
        sched_yield();
    bool is_busy = waited < AWAKE && lk__nanoseconds() - began > (group->has_core ? SHORT : TURNS);
    if (is_busy || waited >= AWAKE)
        nanosleep(&(struct timespec){.tv_nsec = is_busy ? LONG_SLEEP : SLEEP}, NULL);
}

/* Messages in flight that are asked about together, `at_once` or, if that is less, all of them. */
typedef struct message_list {
    lk_message *messages;
    int n, at_once;
} message_list;

/* Takes messages that are done out of the list. */
static lk_status group_poll(const lk_group *group, message_list *list)
{
    char error[LK_MESSAGES_ERROR];
    int at_once = list->at_once < list->n ? list->at_once : list->n;
    for (int i = 0; i < list->n;) {
        bool are_done = false;
        if (group->table->done(list->messages + i, at_once, &are_done, error) != LK_MESSAGES_OK)
            LK_FAIL(LK_ERR_BACKEND, "rank %d: %s", group->rank, error);
        if (!are_done) {
            i += at_once;
            continue;
        }
        list->n -= at_once;
        list->messages[i] = list->messages[list->n];
    }
    return LK_OK;
}

/* Waits for messages. Looks for notes of ranks that gave up only after UNTROUBLED nanoseconds. After such a note the
 * wait goes on for PATIENCE, because messages sent before it may still arrive: then, if all ranks find the same error
 * in the data, each reports its own. */
static lk_status group_wait(lk_group *group, message_list received, message_list sent)
{
    enum { UNTROUBLED = 1000000, PATIENCE = 50000000 }; /* nanoseconds */
    int64_t began = lk__nanoseconds(), arrived = 0;     /* when the last message came; 0: none has */
    int64_t known = 0;                                  /* when a rank was first known to have given up; 0: none has */
    for (;;) {
        int before = received.n;
        LK_TRY(group_poll(group, &received));
        LK_TRY(group_poll(group, &sent));
        if (received.n + sent.n == 0)
            return LK_OK;
        int64_t waited = lk__nanoseconds() - began;
        if (received.n < before)
            arrived = waited;
        if (!known && waited > UNTROUBLED && lk__notes_look(&group->notes))
            known = waited;
        if (known && waited - known > PATIENCE)
            return group_fail_as_noted(group);
        group_pause_between_polls(group, waited, arrived > 0 ? waited - arrived : INT64_MAX);
    }
}

lk_status lk__group_exchange(lk_group *group, lk_channel channel, const lk_group_message *messages, int n)
{
    LK_TRY(lk__group_check(group));
    lk_message few[32], *in_flight = n <= 32 ? few : lk__calloc((size_t)n, sizeof *in_flight);
    lk_status status = in_flight ? LK_OK : LK_ERR_MEMORY;
    enum { FEW = 8 };
    message_list received = {in_flight, 0, group->has_core && n <= FEW ? 1 : n}, sent = {in_flight + n, 0, n};
    for (int i = 0; i < n && status == LK_OK; i++) {
        lk_message *message = messages[i].is_sent ? --sent.messages : received.messages + received.n;
        *(messages[i].is_sent ? &sent.n : &received.n) += 1;
        status = group_begin_message(group, channel, &messages[i], message);
    }
    lk_activity before =
        lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, channel == LK_CHANNEL_DATA ? "exchange" : "agreement");
    if (status == LK_OK)
        status = group_wait(group, received, sent);
    lk__activity_end(before);
    if (in_flight != few)
        lk__free(in_flight);
    return group_give_up_on_error(group, status);
}

/* Memory of messages. If they fail they may stay in flight, and the memory is kept for the rest of the process. */
typedef struct message_memory {
    lk_abandoned abandoned;
    max_align_t bytes[];
} message_memory;

static message_memory *group_message_memory_new(size_t bytes)
{
    return lk__calloc(1, sizeof(message_memory) + bytes);
}

static void group_message_memory_end(message_memory *b, lk_status status)
{
    if (status == LK_OK)
        lk__free(b);
    else
        lk__abandon(&b->abandoned);
}

/* rows: [ranks * bytes], in which this rank's row is set. */
static lk_status group_gather_rows(lk_group *group, char *rows, size_t bytes)
{
    int others = group->ranks - 1, n = 0;
    lk_group_message *messages = lk__calloc(2 * (size_t)others + 1, sizeof *messages);
    if (!messages)
        return group_give_up_on_error(group, LK_ERR_MEMORY);
    for (int step = 1; step <= others; step++) {
        int to = (group->rank + step) % group->ranks, from = (group->rank + group->ranks - step) % group->ranks;
        messages[n++] = (lk_group_message){
            .is_sent = true, .other = to, .data = rows + (size_t)group->rank * bytes, .bytes = bytes};
        messages[n++] = (lk_group_message){.other = from, .data = rows + (size_t)from * bytes, .bytes = bytes};
    }
    lk_status status = lk__group_exchange(group, LK_CHANNEL_CONTROL, messages, n);
    lk__free(messages);
    return status;
}

lk_status lk__group_gather(lk_group *group, const void *mine, size_t bytes, void *all)
{
    size_t size = (size_t)group->ranks * bytes;
    message_memory *b = group_message_memory_new(size);
    if (!b)
        return group_give_up_on_error(group, LK_ERR_MEMORY);
    char *rows = (char *)b->bytes;
    memcpy(rows + (size_t)group->rank * bytes, mine, bytes);
    lk_status status = group_gather_rows(group, rows, bytes);
    if (status == LK_OK)
        memcpy(all, rows, size);
    group_message_memory_end(b, status);
    return status;
}

void *lk__group_gather_new(lk_group *group, const void *mine, size_t bytes)
{
    void *all = lk__calloc((size_t)group->ranks, bytes);
    lk_status status = all ? lk__group_gather(group, mine, bytes, all) : group_give_up_on_error(group, LK_ERR_MEMORY);
    if (status == LK_OK)
        return all;
    lk__free(all);
    return NULL;
}

/* Along a binomial tree, in which a rank's distance from the root loses its lowest bit at the parent. */
static lk_status group_broadcast(lk_group *group, int from, void *data, size_t bytes)
{
    lk_group_message children[32];
    int distance = (group->rank - from + group->ranks) % group->ranks, bit = 1, n = 0;
    for (; bit < group->ranks && !(distance & bit); bit *= 2)
        if (distance + bit < group->ranks)
            children[n++] = (lk_group_message){
                .is_sent = true, .other = (group->rank + bit) % group->ranks, .data = data, .bytes = bytes};
    lk_group_message parent = {
        .other = (group->rank - bit + group->ranks) % group->ranks, .data = data, .bytes = bytes};
    if (distance > 0)
        LK_TRY(lk__group_exchange(group, LK_CHANNEL_CONTROL, &parent, 1));
    return lk__group_exchange(group, LK_CHANNEL_CONTROL, children, n);
}

lk_status lk__group_broadcast(lk_group *group, int from, void *data, size_t bytes)
{
    message_memory *b = group_message_memory_new(bytes);
    if (!b)
        return group_give_up_on_error(group, LK_ERR_MEMORY);
    memcpy(b->bytes, data, bytes);
    lk_status status = group_broadcast(group, from, b->bytes, bytes);
    if (status == LK_OK)
        memcpy(data, b->bytes, bytes);
    group_message_memory_end(b, status);
    return status;
}

/* --- joining and leaving ------------------------------------------------------------------------------------------ */

static lk_status group_find_messages(lk_group *group)
{
    char why_not[512];
    lk_messages_fn table;
    if (!group->table)
        group->table = lk__shared_messages();
    if (group->table)
        return LK_OK;
    *(void **)&table = lk__plugin_symbol(&plugin, why_not, sizeof why_not);
    if (!table)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "several processes need the plug-in for MPI: %s; without it describe them in TF_CONFIG", why_not);
    group->table = table();
    if (group->table->interface != LK_MESSAGES_INTERFACE || group->table->size != sizeof *group->table)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: is of another version of lockstep", plugin.file);
    return LK_OK;
}

static lk_status group_join(lk_group *group)
{
    char error[LK_MESSAGES_ERROR];
    host_name mine;
    memset(mine, 0, sizeof mine);
    LK_TRY(group_find_messages(group));
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for all processes to join");
    lk_messages_status opened = group->table->open(&group->rank, &group->ranks, error);
    lk__activity_end(before);
    if (opened != LK_MESSAGES_OK) {
        group->table = NULL;
        LK_FAIL(LK_ERR_BACKEND, "%s", error);
    }
    LK_TRY(lk__notes_open(&group->notes, group->table, group->rank, group->ranks));
    atomic_store(&group->has_notes, true);
    group->table->host(mine);
    group->hosts = lk__calloc((size_t)group->ranks, sizeof *group->hosts);
    LK_TRY(group->hosts ? lk__group_gather(group, mine, sizeof mine, group->hosts) : LK_ERR_MEMORY);
    long here = 0;
    for (int rank = 0; rank < group->ranks; rank++)
        here += strcmp(group->hosts[rank], mine) == 0;
    group->has_core = here <= sysconf(_SC_NPROCESSORS_ONLN);
    group->spans_machines = here < group->ranks;
    return LK_OK;
}

static lk_status group_open_once(void)
{
    if (has_left)
        LK_FAIL(LK_ERR_STATE, "group: this process has left the others; it cannot join them again");
    if (is_open)
        return LK_OK;
    LK_TRY(group_join(&the_group));
    is_open = true;
    return LK_OK;
}

bool lk__group_is_unknown(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}; /* of mpirun and srun */
    bool is_started = lk__shared_messages() != NULL;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        is_started |= getenv(variables[i]) != NULL;
    pthread_mutex_lock(&opening);
    bool is_known = is_open || the_group.table;
    pthread_mutex_unlock(&opening);
    return !is_started && !is_known;
}

void lk__group_use(const lk_messages *table)
{
    pthread_mutex_lock(&opening);
    the_group.table = table;
    pthread_mutex_unlock(&opening);
}

lk_status lk__group_open(lk_group **group)
{
    pthread_mutex_lock(&opening);
    lk_status status = group_open_once();
    pthread_mutex_unlock(&opening);
    *group = status == LK_OK ? &the_group : NULL;
    return status;
}

static void group_close(lk_group *group)
{
    atomic_store(&group->has_notes, false);
    lk__notes_close(&group->notes);
    group->table->close();
    lk__free(group->hosts);
    group->hosts = NULL;
}

static lk_status group_leave(lk_group *group)
{
    char mine = 0;
    char *all = lk__calloc((size_t)group->ranks, 1);
    lk_status status = all ? lk__group_gather(group, &mine, 1, all) : group_give_up_on_error(group, LK_ERR_MEMORY);
    lk__free(all);
    if (status == LK_OK)
        group_close(group);
    return status;
}

lk_status lk_leave_processes(void)
{
    pthread_mutex_lock(&opening);
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for all processes to leave");
    lk_status status = is_open && !has_left ? group_leave(&the_group) : LK_OK;
    lk__activity_end(before);
    has_left = is_open;
    pthread_mutex_unlock(&opening);
    return status;
}

/* If a rank does not come, the program that started the processes ends them. */
void lk_abandon_processes(void)
{
    const double patience = 5; /* seconds: others have yet to say why they end, and may have no core */
    if (!atomic_load(&the_group.has_notes))
        return;
    lk__processes_give_up(lk_error_status());
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for all processes to leave");
    if (lk__notes_part(&the_group.notes, patience))
        group_close(&the_group);
    lk__activity_end(before);
}

size_t lk__group_most_to_all(const lk_group *group)
{
    return group->table->most_to_all;
}

int lk__group_rank(const lk_group *group)
{
    return group->rank;
}

int lk__group_ranks(const lk_group *group)
{
    return group->ranks;
}

const char *lk__group_library(const lk_group *group)
{
    return group->table->version();
}

const char *lk__group_host(const lk_group *group, int rank)
{
    return group->hosts[rank];
}

bool lk__group_spans_machines(const lk_group *group)
{
    return group->spans_machines;
}
