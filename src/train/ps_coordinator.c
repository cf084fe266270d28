/* A coordinator's life, its thread, and what the thread that trains asks of it. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void lk__ps_fail(ps_coordinator *c, lk_status status, const char *format, ...)
{
    va_list arguments;
    if (c->failure != LK_OK)
        return;
    c->failure = status;
    va_start(arguments, format);
    vsnprintf(c->failure_text, sizeof c->failure_text, format, arguments);
    va_end(arguments);
    pthread_cond_broadcast(&c->changed);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Damaged or hostile messages are told of, and are nobody else's trouble. */
static void complain(ps_coordinator *c)
{
    enum { LOUD = 10 };
    if (c->damaged++ < LOUD)
        lk__log(LK_LOG_WARNING, "the chief drops a message: %s", lk_error_message());
    lk_error_clear();
}

static lk_status answer(ps_coordinator *c, lk_mail *mail)
{
    lk_wire_header header;
    bool keep = false;
    lk_status status = lk__wire_header(mail, &header);
    if (status == LK_OK)
        status = header.kind == PS_WORK || header.kind == PS_ASK ? lk__ps_work_answer(c, mail, &header, &keep)
                                                                 : lk__ps_members_answer(c, mail, &header, &keep);
    if (!keep)
        lk__mail_release(mail);
    if (status != LK_ERR_FORMAT)
        return status;
    complain(c);
    return LK_OK;
}

/* A process that was stopped for a while has heard nobody meanwhile: a step of time is never more than a tenth of a
 * second, and what has arrived is read before anybody counts as silent. */
static lk_status step(ps_coordinator *c, double *last)
{
    enum { PATIENCE = 20 };
    lk_mail *mail;
    LK_TRY(lk__service_receive(c->service, PATIENCE, &mail));
    pthread_mutex_lock(&c->mutex);
    lk_status status = mail ? answer(c, mail) : LK_OK;
    double time = now(), gone = time - *last;
    if (status == LK_OK && (!mail || gone > 0.05)) {
        *last = time;
        status = lk__ps_members_tick(c, gone < 0.1 ? gone : 0.1);
    }
    if (status == LK_OK)
        status = lk__ps_work_serve(c);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

static void *run(void *argument)
{
    ps_coordinator *c = argument;
    double last = now();
    lk_status status = LK_OK;
    while (status == LK_OK && !atomic_load(&c->stop))
        status = step(c, &last);
    if (status != LK_OK) {
        pthread_mutex_lock(&c->mutex);
        lk__ps_fail(c, status, "%s", lk_error_message());
        pthread_mutex_unlock(&c->mutex);
    }
    return NULL;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

lk_status lk__ps_coordinator_open(lk_post *post, ps_place *place, ps_coordinator **coordinator)
{
    ps_coordinator *c = lk__calloc(1, sizeof *c);
    pthread_condattr_t clock;
    *coordinator = c;
    if (!c)
        return LK_ERR_MEMORY;
    c->post = post;
    c->place = place;
    atomic_init(&c->stop, false);
    atomic_init(&c->generation, 1);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    LK_TRY(lk__service_open(post, &place->chief, &c->service));
    place->chief.port = lk__service_port(c->service);
    lk__address_print(&place->chief, place->chief_text);
    return LK_OK;
}

void lk__ps_coordinator_release(ps_coordinator *c)
{
    if (!c)
        return;
    atomic_store(&c->stop, true);
    if (c->is_started)
        pthread_join(c->thread, NULL);
    lk__ps_seats_free(&c->seats);
    for (int s = 0; c->servers && s < c->place->servers; s++)
        lk__free(c->servers[s].initial);
    lk__service_release(c->service);
    lk__handouts_release(c->handouts);
    lk__free(c->servers);
    lk__free(c->agreement);
    lk__free(c->rates);
    lk__free(c->finished);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    lk__free(c);
}

static lk_status read_for(ps_coordinator *c, int s, float *scratch)
{
    const ps_training *training = &c->training;
    const ps_layout *layout = training->layout;
    int64_t elements = layout->placement.elements[s], statistics = lk__ps_layout_statistics(layout, s);
    float *initial = lk__calloc((size_t)((1 + training->n_slots) * elements + statistics), sizeof *initial);
    c->servers[s].initial = initial;
    if (!initial)
        return LK_ERR_MEMORY;
    LK_TRY(lk__ps_layout_read(layout, training->variables, s, initial, initial + elements, scratch));
    for (int slot = 0; slot < training->n_slots; slot++)
        LK_TRY(lk__ps_layout_read_parameters(layout, training->state[slot], s,
                                             initial + (1 + slot) * elements + statistics, scratch));
    return LK_OK;
}

static lk_status read_initial(ps_coordinator *c)
{
    float *scratch = lk__calloc((size_t)lk__ps_layout_largest(c->training.layout), sizeof *scratch);
    lk_status status = scratch ? LK_OK : LK_ERR_MEMORY;
    for (int s = 0; s < c->place->servers && status == LK_OK; s++)
        status = read_for(c, s, scratch);
    lk__free(scratch);
    return status;
}

lk_status lk__ps_coordinator_start(ps_coordinator *c, const ps_training *training)
{
    c->training = *training;
    c->agreement = lk__calloc(training->agreement_bytes + 1, 1);
    c->servers = lk__calloc((size_t)c->place->servers, sizeof *c->servers);
    if (!c->agreement || !c->servers)
        return LK_ERR_MEMORY;
    memcpy(c->agreement, training->agreement, training->agreement_bytes);
    LK_TRY(lk__handouts_new(training->setup.shards, training->setup.max_staleness, &c->handouts));
    LK_TRY(read_initial(c));
    c->is_started = pthread_create(&c->thread, NULL, run, c) == 0;
    if (!c->is_started)
        LK_FAIL(LK_ERR_MEMORY, "parameter-server: no thread for the chief's conversation");
    return LK_OK;
}

/* --- epochs ------------------------------------------------------------------------------------------------------- */

lk_status lk__ps_coordinator_begin(ps_coordinator *c, const ps_epoch *epoch)
{
    double *rates = lk__calloc((size_t)epoch->count, sizeof *rates);
    if (!rates)
        return LK_ERR_MEMORY;
    memcpy(rates, epoch->rates, (size_t)epoch->count * sizeof *rates);
    pthread_mutex_lock(&c->mutex);
    lk__free(c->rates);
    c->rates = rates;
    c->epoch = *epoch;
    c->epoch.rates = NULL;
    c->partial = (ps_finished){0};
    c->stale = 0;
    c->is_stopping = false;
    c->dropped = 0;
    lk__handouts_start(c->handouts, epoch->first + epoch->done, epoch->count - epoch->done);
    pthread_mutex_unlock(&c->mutex);
    return LK_OK;
}

static struct timespec from_now(int milliseconds)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t nanoseconds = time.tv_nsec + milliseconds * INT64_C(1000000);
    return (struct timespec){.tv_sec = time.tv_sec + (time_t)(nanoseconds / 1000000000),
                             .tv_nsec = (long)(nanoseconds % 1000000000)};
}

lk_status lk__ps_coordinator_next(ps_coordinator *c, int milliseconds, ps_finished *finished, bool *any)
{
    char text[LK_MESSAGE_BYTES];
    struct timespec end = from_now(milliseconds);
    int late = 0;
    pthread_mutex_lock(&c->mutex);
    while (c->n_finished == 0 && c->failure == LK_OK && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&c->changed, &c->mutex, &end);
    *any = c->n_finished > 0;
    if (*any) {
        *finished = c->finished[0];
        memmove(c->finished, c->finished + 1, (size_t)--c->n_finished * sizeof *finished);
    }
    lk_status failure = *any ? LK_OK : c->failure;
    memcpy(text, c->failure_text, sizeof text);
    pthread_mutex_unlock(&c->mutex);
    if (failure != LK_OK)
        LK_FAIL(failure, "%s", text);
    return LK_OK;
}

void lk__ps_coordinator_pause(ps_coordinator *c, bool paused)
{
    pthread_mutex_lock(&c->mutex);
    lk__handouts_pause(c->handouts, paused);
    pthread_mutex_unlock(&c->mutex);
}

bool lk__ps_coordinator_is_at_rest(ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool rests = c->n_finished == 0 && lk__handouts_are_at_rest(c->handouts);
    pthread_mutex_unlock(&c->mutex);
    return rests;
}

void lk__ps_coordinator_stop(ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    lk__handouts_stop(c->handouts);
    c->is_stopping = true;
    pthread_mutex_unlock(&c->mutex);
}

bool lk__ps_coordinator_has_dropped(ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool dropped = c->dropped > 0;
    pthread_mutex_unlock(&c->mutex);
    return dropped;
}

bool lk__ps_coordinator_has_servers(ps_coordinator *c)
{
    bool all = true;
    pthread_mutex_lock(&c->mutex);
    for (int s = 0; s < c->place->servers; s++)
        all = all && c->servers[s].place.is_there;
    pthread_mutex_unlock(&c->mutex);
    return all;
}

bool lk__ps_coordinator_is_idle(ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool idle = c->n_finished == 0 && lk__handouts_are_finished(c->handouts);
    pthread_mutex_unlock(&c->mutex);
    return idle;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* A worker that was welcomed a moment ago has yet to be told that training has ended. */
static bool is_awaited(const ps_coordinator *c, const ps_seat *seat)
{
    bool is_coming = seat->state == PS_SEAT_KEPT && seat->worker >= 0 && seat->silence < c->place->timeout;
    return seat->state == PS_SEAT_TAKEN || is_coming;
}

static bool awaits_nobody(const ps_coordinator *c)
{
    bool nobody = true;
    for (int i = 0; i < c->seats.n; i++)
        nobody = nobody && !is_awaited(c, &c->seats.seats[i]);
    for (int s = 0; s < c->place->servers; s++)
        nobody = nobody && (!c->servers[s].place.is_there || c->servers[s].was_told);
    return nobody;
}

static void name_those_awaited(const ps_coordinator *c)
{
    for (int i = 0; i < c->seats.n; i++)
        if (is_awaited(c, &c->seats.seats[i]))
            lk__log(LK_LOG_WARNING, "worker %lld on %s does not hear that training has ended",
                    (long long)c->seats.seats[i].worker, c->seats.seats[i].host);
    for (int s = 0; s < c->place->servers; s++)
        if (c->servers[s].place.is_there && !c->servers[s].was_told)
            lk__log(LK_LOG_WARNING, "parameter server %d at %s does not hear that training has ended", s,
                    c->servers[s].place.address);
}

/* Those that have died are lost in between; the others may be at work, or have no core. */
void lk__ps_coordinator_end(ps_coordinator *c, ps_state state, const char *reason)
{
    enum { PATIENCE = 10000, LOOK = 10 };
    static const struct timespec look = {.tv_nsec = LOOK * 1000000L};
    if (!c->is_started)
        return;
    pthread_mutex_lock(&c->mutex);
    c->state = state;
    snprintf(c->reason, sizeof c->reason, "%s", reason);
    for (int waited = 0; waited < PATIENCE && !awaits_nobody(c); waited += LOOK) {
        pthread_mutex_unlock(&c->mutex);
        nanosleep(&look, NULL);
        pthread_mutex_lock(&c->mutex);
    }
    name_those_awaited(c);
    pthread_mutex_unlock(&c->mutex);
}

void lk__ps_coordinator_report(ps_coordinator *c, lk_async_report *report)
{
    pthread_mutex_lock(&c->mutex);
    lk_handout_counts counts = lk__handouts_counts(c->handouts);
    *report = c->report;
    report->handed_out = counts.handed_out;
    report->handed_again = counts.again;
    pthread_mutex_unlock(&c->mutex);
}

lk_status lk__ps_coordinator_workers(ps_coordinator *c, ps_worked **workers, int *n)
{
    pthread_mutex_lock(&c->mutex);
    lk_status status = lk__ps_crew_list(&c->crew, &c->seats, workers, n);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

static int generation(void *user)
{
    return atomic_load(&((ps_coordinator *)user)->generation);
}

static lk_status look_up(void *user, ps_server_place *places, int *of)
{
    ps_coordinator *c = user;
    pthread_mutex_lock(&c->mutex);
    *of = atomic_load(&c->generation);
    for (int s = 0; s < c->place->servers; s++)
        places[s] = c->servers[s].place;
    pthread_mutex_unlock(&c->mutex);
    return LK_OK;
}

static lk_status check(void *user)
{
    ps_coordinator *c = user;
    char text[LK_MESSAGE_BYTES];
    pthread_mutex_lock(&c->mutex);
    lk_status failure = c->failure;
    memcpy(text, c->failure_text, sizeof text);
    pthread_mutex_unlock(&c->mutex);
    if (failure != LK_OK)
        LK_FAIL(failure, "%s", text);
    return LK_OK;
}

ps_directory lk__ps_coordinator_directory(ps_coordinator *c)
{
    return (ps_directory){.user = c, .generation = generation, .look_up = look_up, .check = check};
}
