#include "train/parameter_server/ps_coordinator.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "train/parameter_server/ps_members.h"
#include "train/parameter_server/ps_work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lk__ps_fail(lk_ps_coordinator *c, lk_status status, const char *format, ...)
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

/* Logs the first damaged or hostile messages and drops them; they must not stop the training of others. */
static void ps_coordinator_drop_message(lk_ps_coordinator *c)
{
    enum { MOST_LOGGED = 10 };
    if (c->damaged++ < MOST_LOGGED)
        lk__log(LK_LOG_WARNING, "the chief drops a message: %s", lk_error_message());
    lk_error_clear();
}

static lk_status ps_coordinator_answer(lk_ps_coordinator *c, lk_mail *mail)
{
    lk_wire_header header;
    bool keep = false;
    lk_status status = lk__wire_header(mail, &header);
    if (status == LK_OK)
        status = header.kind == LK_PS_WORK || header.kind == LK_PS_ASK ? lk__ps_work_answer(c, mail, &header, &keep)
                                                                       : lk__ps_members_answer(c, mail, &header, &keep);
    if (!keep)
        lk__mail_release(mail);
    if (status != LK_ERR_FORMAT)
        return status;
    ps_coordinator_drop_message(c);
    return LK_OK;
}

/* Handles one message, or the passing of time. A chief that was stopped for a while has not listened. So waiting
 * messages are read before any process counts as silent, and at most a tenth of a second passes in a step. */
static lk_status ps_coordinator_step(lk_ps_coordinator *c, double *last)
{
    enum { PATIENCE = 20 }; /* milliseconds */
    lk_mail *mail;
    LK_TRY(lk__service_receive(c->service, PATIENCE, &mail));
    pthread_mutex_lock(&c->mutex);
    lk_status status = mail ? ps_coordinator_answer(c, mail) : LK_OK;
    double time = lk__seconds(), gone = time - *last;
    if (status == LK_OK && (!mail || gone > 0.05)) {
        *last = time;
        status = lk__ps_members_tick(c, gone < 0.1 ? gone : 0.1);
    }
    if (status == LK_OK)
        status = lk__ps_work_serve(c);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

/* Answers also after an error, because the others ask for the reason of the end. */
static void *ps_coordinator_run(void *argument)
{
    static const struct timespec after_error = {.tv_nsec = 20 * 1000000L};
    lk_ps_coordinator *c = argument;
    double last = lk__seconds();
    while (!atomic_load(&c->stop)) {
        lk_status status = ps_coordinator_step(c, &last);
        if (status == LK_OK)
            continue;
        pthread_mutex_lock(&c->mutex);
        lk__ps_fail(c, status, "%s", lk_error_message());
        pthread_mutex_unlock(&c->mutex);
        lk_error_clear();
        nanosleep(&after_error, NULL);
    }
    return NULL;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

lk_status lk__ps_coordinator_open(lk_post *post, lk_ps_identity *identity, lk_ps_coordinator **coordinator)
{
    lk_ps_coordinator *c = lk__calloc(1, sizeof *c);
    *coordinator = c;
    if (!c)
        return LK_ERR_MEMORY;
    c->post = post;
    c->identity = identity;
    atomic_init(&c->stop, false);
    atomic_init(&c->generation, 1);
    pthread_mutex_init(&c->mutex, NULL);
    lk__condition_init(&c->changed);
    LK_TRY(lk__service_open(post, &identity->chief, &c->service));
    identity->chief.port = lk__service_port(c->service);
    lk__address_print(&identity->chief, identity->chief_text);
    return LK_OK;
}

void lk__ps_coordinator_release(lk_ps_coordinator *c)
{
    if (!c)
        return;
    atomic_store(&c->stop, true);
    if (c->is_started)
        pthread_join(c->thread, NULL);
    lk__ps_seats_free(&c->seats);
    for (int s = 0; c->servers && s < c->identity->servers; s++)
        lk__free(c->servers[s].initial);
    lk__service_release(c->service);
    lk__handouts_release(c->handouts);
    LK_FREE_ALL(c->servers, c->agreement, c->rates, c->finished, c->sums);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    lk__free(c);
}

/* Reads what server s begins with. */
static lk_status ps_coordinator_read_for(lk_ps_coordinator *c, int s, float *scratch)
{
    const lk_ps_training *training = &c->training;
    const lk_ps_layout *layout = training->layout;
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

static lk_status ps_coordinator_read_initial(lk_ps_coordinator *c)
{
    float *scratch = lk__calloc((size_t)lk__ps_layout_largest(c->training.layout), sizeof *scratch);
    lk_status status = scratch ? LK_OK : LK_ERR_MEMORY;
    for (int s = 0; s < c->identity->servers && status == LK_OK; s++)
        status = ps_coordinator_read_for(c, s, scratch);
    lk__free(scratch);
    return status;
}

lk_status lk__ps_coordinator_start(lk_ps_coordinator *c, const lk_ps_training *training)
{
    c->training = *training;
    c->agreement = lk__calloc(training->agreement_bytes + 1, 1);
    c->servers = lk__calloc((size_t)c->identity->servers, sizeof *c->servers);
    if (!c->agreement || !c->servers)
        return LK_ERR_MEMORY;
    memcpy(c->agreement, training->agreement, training->agreement_bytes);
    LK_TRY(lk__handouts_new(training->setup.shards, training->setup.max_staleness, &c->handouts));
    LK_TRY(ps_coordinator_read_initial(c));
    int error = lk__thread_start(&c->thread, ps_coordinator_run, c);
    c->is_started = error == 0;
    if (!c->is_started)
        LK_FAIL(LK_ERR_MEMORY, "parameter-server: no thread for the chief's conversation: %s", strerror(error));
    return LK_OK;
}

/* --- epochs ------------------------------------------------------------------------------------------------------- */

lk_status lk__ps_coordinator_begin(lk_ps_coordinator *c, const lk_ps_epoch *epoch)
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
    c->n_sums = 0;
    c->stale = 0;
    c->is_skipped = false;
    c->is_stopping = false;
    c->dropped = 0;
    lk__handouts_start(c->handouts, epoch->first + epoch->done, epoch->count - epoch->done);
    pthread_mutex_unlock(&c->mutex);
    return LK_OK;
}

/* Fails with the training's failure, if there is one. */
static lk_status ps_coordinator_check(void *user)
{
    lk_ps_coordinator *c = user;
    char text[LK_MESSAGE_BYTES];
    pthread_mutex_lock(&c->mutex);
    lk_status failure = c->failure;
    memcpy(text, c->failure_text, sizeof text);
    pthread_mutex_unlock(&c->mutex);
    if (failure != LK_OK)
        LK_FAIL(failure, "%s", text);
    return LK_OK;
}

lk_status lk__ps_coordinator_next(lk_ps_coordinator *c, int milliseconds, lk_ps_finished *finished, bool *any)
{
    struct timespec end = lk__deadline_after(milliseconds);
    int late = 0;
    pthread_mutex_lock(&c->mutex);
    while (c->n_finished == 0 && c->failure == LK_OK && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&c->changed, &c->mutex, &end);
    *any = c->n_finished > 0;
    if (*any) {
        *finished = c->finished[0];
        memmove(c->finished, c->finished + 1, (size_t)--c->n_finished * sizeof *finished);
    }
    pthread_mutex_unlock(&c->mutex);
    return *any ? LK_OK : ps_coordinator_check(c);
}

void lk__ps_coordinator_pause(lk_ps_coordinator *c, bool paused)
{
    pthread_mutex_lock(&c->mutex);
    lk__handouts_pause(c->handouts, paused);
    pthread_mutex_unlock(&c->mutex);
}

bool lk__ps_coordinator_is_at_rest(lk_ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool rests = c->n_finished == 0 && lk__handouts_are_at_rest(c->handouts);
    pthread_mutex_unlock(&c->mutex);
    return rests;
}

void lk__ps_coordinator_stop(lk_ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    lk__handouts_stop(c->handouts);
    c->is_stopping = true;
    pthread_mutex_unlock(&c->mutex);
}

bool lk__ps_coordinator_has_dropped(lk_ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool dropped = c->dropped > 0;
    pthread_mutex_unlock(&c->mutex);
    return dropped;
}

bool lk__ps_coordinator_has_servers(lk_ps_coordinator *c)
{
    bool all = true;
    pthread_mutex_lock(&c->mutex);
    for (int s = 0; s < c->identity->servers; s++)
        all = all && c->servers[s].location.is_there;
    pthread_mutex_unlock(&c->mutex);
    return all;
}

bool lk__ps_coordinator_is_idle(lk_ps_coordinator *c)
{
    pthread_mutex_lock(&c->mutex);
    bool idle = c->n_finished == 0 && lk__handouts_are_finished(c->handouts);
    pthread_mutex_unlock(&c->mutex);
    return idle;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Returns whether a worker must still be told that training has ended; this includes one that has been welcomed and not
 * been heard from yet. */
static bool ps_coordinator_worker_is_awaited(const lk_ps_coordinator *c, const lk_ps_seat *seat)
{
    bool is_coming = seat->state == LK_PS_SEAT_KEPT && seat->worker >= 0 && seat->silence < c->identity->timeout;
    return seat->state == LK_PS_SEAT_TAKEN || is_coming;
}

static bool ps_coordinator_awaits_nobody(const lk_ps_coordinator *c)
{
    bool nobody = true;
    for (int i = 0; i < c->seats.n; i++)
        nobody = nobody && !ps_coordinator_worker_is_awaited(c, &c->seats.seats[i]);
    for (int s = 0; s < c->identity->servers; s++)
        nobody = nobody && (!c->servers[s].location.is_there || c->servers[s].was_told);
    return nobody;
}

static void ps_coordinator_log_awaited(const lk_ps_coordinator *c)
{
    for (int i = 0; i < c->seats.n; i++)
        if (ps_coordinator_worker_is_awaited(c, &c->seats.seats[i]))
            lk__log(LK_LOG_WARNING, "worker %lld on %s does not hear that training has ended",
                    (long long)c->seats.seats[i].worker, c->seats.seats[i].host);
    for (int s = 0; s < c->identity->servers; s++)
        if (c->servers[s].location.is_there && !c->servers[s].was_told)
            lk__log(LK_LOG_WARNING, "parameter server %d at %s does not hear that training has ended", s,
                    c->servers[s].location.address);
}

/* Dead processes are noticed as lost while this waits; others may be busy, or lack a core. */
void lk__ps_coordinator_end(lk_ps_coordinator *c, lk_ps_state state, const char *reason)
{
    enum { PATIENCE = 10000, LOOK = 10 };
    static const struct timespec look = {.tv_nsec = LOOK * 1000000L};
    if (!c->is_started)
        return;
    pthread_mutex_lock(&c->mutex);
    c->state = state;
    snprintf(c->reason, sizeof c->reason, "%s", reason);
    for (int waited = 0; waited < PATIENCE && !ps_coordinator_awaits_nobody(c); waited += LOOK) {
        pthread_mutex_unlock(&c->mutex);
        nanosleep(&look, NULL);
        pthread_mutex_lock(&c->mutex);
    }
    ps_coordinator_log_awaited(c);
    pthread_mutex_unlock(&c->mutex);
}

void lk__ps_coordinator_report(lk_ps_coordinator *c, lk_async_report *report)
{
    pthread_mutex_lock(&c->mutex);
    lk_handout_counts counts = lk__handouts_counts(c->handouts);
    *report = c->report;
    report->handed_out = counts.handed_out;
    report->handed_again = counts.again;
    pthread_mutex_unlock(&c->mutex);
}

lk_status lk__ps_coordinator_workers(lk_ps_coordinator *c, lk_ps_worker_record **workers, int *n)
{
    pthread_mutex_lock(&c->mutex);
    lk_status status = lk__ps_worker_records_list(&c->records, &c->seats, workers, n);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

static int ps_coordinator_generation(void *user)
{
    return atomic_load(&((lk_ps_coordinator *)user)->generation);
}

static lk_status ps_coordinator_look_up(void *user, lk_ps_server_location *locations, int *generation)
{
    lk_ps_coordinator *c = user;
    pthread_mutex_lock(&c->mutex);
    *generation = atomic_load(&c->generation);
    for (int s = 0; s < c->identity->servers; s++)
        locations[s] = c->servers[s].location;
    pthread_mutex_unlock(&c->mutex);
    return LK_OK;
}

lk_ps_directory lk__ps_coordinator_directory(lk_ps_coordinator *c)
{
    return (lk_ps_directory){.user = c,
                             .generation = ps_coordinator_generation,
                             .look_up = ps_coordinator_look_up,
                             .check = ps_coordinator_check};
}
