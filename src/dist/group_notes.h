/* How ranks learn that one of them cannot go on. It sends a note to every other rank, on a channel of its own, for
 * which each has a receive under way. Who waits for messages looks there too, after some time, and tells all others in
 * turn what it has read: so nobody waits for long for somebody who has stopped waiting, and what a rank sends after
 * that is never taken for something else, for it sends nothing. */
#ifndef LK_DIST_GROUP_NOTES_H
#define LK_DIST_GROUP_NOTES_H

#include "dist/messages.h"
#include "lockstep/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LK_NOTE_TEXT = 1008 };

typedef struct lk_note {
    int32_t is_parting; /* 1: the sender has nothing more to say; else that somebody gave up */
    int32_t rank;       /* who that is */
    int32_t status;     /* lk_status, and why */
    int32_t reserved;
    char text[LK_NOTE_TEXT];
} lk_note;

/* Zero at first. */
typedef struct lk_notes {
    const lk_messages *table;
    int rank, ranks;
    pthread_mutex_t lock; /* of all that follows but the first two */
    atomic_bool is_bad;
    lk_note first; /* that was sent or came; once is_bad is set it stays */
    lk_note coming, parting;
    lk_message receive;  /* of `coming` */
    bool is_listening;   /* it is under way */
    lk_message *sending; /* [ranks - 1] of `first`, then of `parting` */
    int parted;          /* other ranks */
} lk_notes;

/* With one rank there is nobody to tell. Errors: LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__notes_open(lk_notes *notes, const lk_messages *table, int rank, int ranks);
void lk__notes_close(lk_notes *notes);

/* This rank cannot go on. The first note counts. Needs no memory; from any thread. */
void lk__notes_give_up(lk_notes *notes, lk_status status, const char *why);

/* Whether any rank is known to have given up; `look` reads what has come. From any thread. */
static inline bool lk__notes_are_bad(const lk_notes *notes)
{
    return atomic_load_explicit(&notes->is_bad, memory_order_acquire);
}
bool lk__notes_look(lk_notes *notes);

/* Where they are bad: tells the others that this rank has nothing more to say, and waits for each to say the same, for
 * so many seconds at most. Whether all did. */
bool lk__notes_part(lk_notes *notes, double seconds);

#endif
