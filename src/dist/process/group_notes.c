#include "dist/process/group_notes.h"

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <time.h>

/* Errors of notes are ignored: a rank has already failed, and no other way to report one remains. */
static char ignored[LK_MESSAGES_ERROR];

static void group_notes_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static bool group_notes_listen(lk_notes *n, char error[LK_MESSAGES_ERROR])
{
    n->is_listening = n->table->begin(false, LK_CHANNEL_NOTES, LK_MESSAGES_ANYBODY, &n->coming, sizeof n->coming,
                                      &n->receive, error) == LK_MESSAGES_OK;
    return n->is_listening;
}

lk_status lk__notes_open(lk_notes *n, const lk_messages *table, int rank, int ranks)
{
    char error[LK_MESSAGES_ERROR];
    n->table = table;
    n->rank = rank;
    n->ranks = ranks;
    pthread_mutex_init(&n->lock, NULL);
    if (ranks == 1)
        return LK_OK;
    n->sending = lk__calloc(2 * ((size_t)ranks - 1), sizeof *n->sending);
    if (!n->sending)
        return LK_ERR_MEMORY;
    if (!group_notes_listen(n, error))
        LK_FAIL(LK_ERR_BACKEND, "rank %d: %s", rank, error);
    return LK_OK;
}

void lk__notes_close(lk_notes *n)
{
    if (n->is_listening)
        n->table->cancel(&n->receive);
    n->is_listening = false;
    lk__free(n->sending);
    n->sending = NULL;
    pthread_mutex_destroy(&n->lock);
}

/* --- with the lock held ------------------------------------------------------------------------------------------- */

/* Sends to all other ranks, and stops waiting after a moment: a rank that does not read its note is ended by the
 * program that started the processes. */
static void group_notes_send(lk_notes *n, lk_note *note, lk_message *sending)
{
    const double patience = 0.1;
    int begun = 0;
    bool all = false;
    for (int step = 1; step < n->ranks; step++)
        if (n->table->begin(true, LK_CHANNEL_NOTES, (n->rank + step) % n->ranks, note, sizeof *note, &sending[begun],
                            ignored) == LK_MESSAGES_OK)
            begun++;
    for (double until = lk__seconds() + patience; !all && lk__seconds() < until;) {
        if (n->table->done(sending, begun, &all, ignored) != LK_MESSAGES_OK)
            return;
        if (!all)
            group_notes_pause();
    }
}

static void group_notes_tell_all(lk_notes *n)
{
    atomic_store_explicit(&n->is_bad, true, memory_order_release);
    if (n->sending)
        group_notes_send(n, &n->first, n->sending);
}

static void group_notes_receive(lk_notes *n)
{
    bool has_come = false;
    if (!n->is_listening || n->table->done(&n->receive, 1, &has_come, ignored) != LK_MESSAGES_OK || !has_come)
        return;
    if (n->coming.is_parting) {
        n->parted++;
    } else if (!lk__notes_are_bad(n)) {
        n->first = n->coming;
        n->first.text[LK_NOTE_TEXT - 1] = '\0';
        if (n->first.status <= LK_OK || n->first.status >= LK_STATUS_COUNT)
            n->first.status = LK_ERR_BACKEND;
        lk__heartbeat_follow();
        group_notes_tell_all(n);
    }
    group_notes_listen(n, ignored);
}

/* --- from any thread ---------------------------------------------------------------------------------------------- */

void lk__notes_give_up(lk_notes *n, lk_status status, const char *why)
{
    pthread_mutex_lock(&n->lock);
    if (!lk__notes_are_bad(n)) {
        n->first = (lk_note){.rank = n->rank, .status = (int32_t)status};
        snprintf(n->first.text, sizeof n->first.text, "%s", *why ? why : lk_status_name(status));
        group_notes_tell_all(n);
    }
    pthread_mutex_unlock(&n->lock);
}

bool lk__notes_look(lk_notes *n)
{
    if (!lk__notes_are_bad(n) && n->sending && pthread_mutex_trylock(&n->lock) == 0) {
        group_notes_receive(n);
        pthread_mutex_unlock(&n->lock);
    }
    return lk__notes_are_bad(n);
}

bool lk__notes_part(lk_notes *n, double seconds)
{
    if (!n->sending)
        return true;
    pthread_mutex_lock(&n->lock);
    n->parting.is_parting = 1;
    group_notes_send(n, &n->parting, n->sending + n->ranks - 1);
    for (double until = lk__seconds() + seconds; n->parted < n->ranks - 1 && lk__seconds() < until; group_notes_pause())
        group_notes_receive(n);
    bool all = n->parted == n->ranks - 1;
    pthread_mutex_unlock(&n->lock);
    return all;
}
