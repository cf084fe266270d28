#include "train/ps_seats.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

enum { NO_NUMBER = -1 };

void lk__ps_seat_clear(ps_seat *seat)
{
    lk__mail_release(seat->waiting);
    *seat = (ps_seat){.worker = NO_NUMBER};
}

void lk__ps_seats_free(ps_seats *seats)
{
    for (int i = 0; i < seats->n; i++)
        lk__ps_seat_clear(&seats->seats[i]);
    lk__free(seats->seats);
    *seats = (ps_seats){NULL};
}

ps_seat *lk__ps_seats_of_process(ps_seats *seats, uint64_t nonce)
{
    for (int i = 0; i < seats->n; i++)
        if (seats->seats[i].state != PS_SEAT_FREE && seats->seats[i].nonce == nonce)
            return &seats->seats[i];
    return NULL;
}

ps_seat *lk__ps_seats_of_worker(ps_seats *seats, int64_t worker)
{
    for (int i = 0; i < seats->n && worker >= 0; i++)
        if (seats->seats[i].worker == worker)
            return &seats->seats[i];
    return NULL;
}

int lk__ps_seats_count(const ps_seats *seats)
{
    int n = 0;
    for (int i = 0; i < seats->n; i++)
        n += seats->seats[i].state == PS_SEAT_TAKEN;
    return n;
}

/* --- a seat for one more ------------------------------------------------------------------------------------------ */

static lk_status add(ps_seats *seats, ps_seat **seat)
{
    if (seats->n == seats->capacity) {
        int capacity = seats->capacity ? 2 * seats->capacity : 8;
        ps_seat *more = lk__realloc(seats->seats, (size_t)capacity, sizeof *more);
        if (!more)
            return LK_ERR_MEMORY;
        seats->seats = more;
        seats->capacity = capacity;
    }
    *seat = &seats->seats[seats->n++];
    **seat = (ps_seat){.worker = NO_NUMBER};
    return LK_OK;
}

lk_status lk__ps_seats_find(ps_seats *seats, ps_seat **seat)
{
    int spare = 0;
    ps_seat *longest = NULL;
    for (int i = 0; i < seats->n; i++) {
        ps_seat *one = &seats->seats[i];
        if (one->state == PS_SEAT_FREE) {
            *seat = one;
            return LK_OK;
        }
        if (one->state == PS_SEAT_TAKEN)
            continue;
        spare++;
        if (!longest || one->silence > longest->silence)
            longest = one;
    }
    if (spare < PS_SPARE_SEATS)
        return add(seats, seat);
    *seat = longest;
    return LK_OK;
}

/* --- cores -------------------------------------------------------------------------------------------------------- */

/* Whether the seat's devices may be on these cores of the host. */
static bool overlaps(const ps_seat *seat, const ps_seat *new, double patience)
{
    bool is_used = seat->state == PS_SEAT_TAKEN || (seat->state == PS_SEAT_KEPT && seat->silence < patience);
    return is_used && strcmp(seat->host, new->host) == 0 && new->first_core < seat->first_core + seat->devices &&
           seat->first_core < new->first_core + new->devices;
}

void lk__ps_seats_keep(ps_seats *seats, ps_seat *seat, const ps_join *join, double patience)
{
    ps_seat new = {.worker = NO_NUMBER, .state = PS_SEAT_KEPT, .nonce = join->nonce, .devices = join->devices};
    memcpy(new.host, join->host, sizeof new.host);
    for (int i = 0; i < seats->n; i++)
        if (overlaps(&seats->seats[i], &new, patience)) {
            new.first_core = seats->seats[i].first_core + seats->seats[i].devices;
            i = -1;
        }
    *seat = new;
}

void lk__ps_seats_number(ps_seats *seats, ps_seat *seat)
{
    if (seat->worker == NO_NUMBER)
        seat->worker = seats->workers++;
}
