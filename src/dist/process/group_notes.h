/* Notes tell all ranks that one of them cannot go on. That rank sends a note to every other rank, on a separate
 * channel, for which each rank has a receive in flight. A rank that has waited a while for messages looks for notes,
 * and passes a note it has read on to all others. So no rank waits long for one that has stopped. Nothing is taken for
 * another message, because a rank sends nothing after its note. */
#pragma once

#include "dist/process/messages.h"
#include "lockstep/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LK_NOTE_TEXT = 1008 };

typedef struct lk_note {
    int32_t is_parting; /* 1: the sender will send nothing more; 0: a rank gave up */
    int32_t rank;       /* the rank that gave up */
    int32_t status;     /* lk_status, with the reason in text */
    int32_t reserved;
    char text[LK_NOTE_TEXT];
} lk_note;

/* Zero-initialize before lk__notes_open. */
typedef struct lk_notes {
    const lk_messages *table;
    int rank, ranks;
    pthread_mutex_t lock; /* guards all members below but is_bad and first */
    atomic_bool is_bad;
    lk_note first; /* the first note sent or received; does not change once is_bad is set */
    lk_note coming, parting;
    lk_message receive;  /* the receive of `coming` */
    bool is_listening;   /* it is in flight */
    lk_message *sending; /* [ranks - 1] sends of `first`, then as many of `parting` */
    int parted;          /* number of other ranks that have parted */
} lk_notes;

/* A single rank sends no notes. Errors: LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__notes_open(lk_notes *notes, const lk_messages *table, int rank, int ranks);
void lk__notes_close(lk_notes *notes);

/* Tells all ranks that this rank cannot go on. Only the first note counts. Allocates no memory; from any thread. */
void lk__notes_give_up(lk_notes *notes, lk_status status, const char *why);

/* Returns whether any rank is known to have given up; `look` first reads notes that have arrived. From any thread. */
static inline bool lk__notes_are_bad(const lk_notes *notes)
{
    return atomic_load_explicit(&notes->is_bad, memory_order_acquire);
}
bool lk__notes_look(lk_notes *notes);

/* After a rank has given up: tells the others that this rank will send nothing more, and waits at most `seconds` for
 * each to say the same. Returns whether all did. */
bool lk__notes_part(lk_notes *notes, double seconds);
