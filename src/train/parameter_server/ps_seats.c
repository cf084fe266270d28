#include "train/parameter_server/ps_seats.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

enum { NO_NUMBER = -1 };

void lk__ps_seat_clear(lk_ps_seat *seat)
{
    lk__mail_release(seat->waiting);
    *seat = (lk_ps_seat){.worker = NO_NUMBER};
}

void lk__ps_seats_free(lk_ps_seats *seats)
{
    for (int i = 0; i < seats->n; i++)
        lk__ps_seat_clear(&seats->seats[i]);
    lk__free(seats->seats);
    *seats = (lk_ps_seats){NULL};
}

lk_ps_seat *lk__ps_seats_of_process(lk_ps_seats *seats, uint64_t nonce)
{
    for (int i = 0; i < seats->n; i++)
        if (seats->seats[i].state != LK_PS_SEAT_FREE && seats->seats[i].nonce == nonce)
            return &seats->seats[i];
    return NULL;
}

lk_ps_seat *lk__ps_seats_of_worker(lk_ps_seats *seats, int64_t worker)
{
    for (int i = 0; i < seats->n && worker >= 0; i++)
        if (seats->seats[i].worker == worker)
            return &seats->seats[i];
    return NULL;
}

int lk__ps_seats_count_taken(const lk_ps_seats *seats)
{
    int n = 0;
    for (int i = 0; i < seats->n; i++)
        n += seats->seats[i].state == LK_PS_SEAT_TAKEN;
    return n;
}

/* --- a seat for one more ------------------------------------------------------------------------------------------ */

lk_status lk__ps_seats_find(lk_ps_seats *seats, lk_ps_seat **seat)
{
    int spare = 0;
    lk_ps_seat *longest = NULL;
    for (int i = 0; i < seats->n; i++) {
        lk_ps_seat *one = &seats->seats[i];
        if (one->state == LK_PS_SEAT_FREE) {
            *seat = one;
            return LK_OK;
        }
        if (one->state == LK_PS_SEAT_TAKEN)
            continue;
        spare++;
        if (!longest || one->silence > longest->silence)
            longest = one;
    }
    *seat = longest;
    if (spare >= LK_PS_SPARE_SEATS)
        return LK_OK;
    LK_TRY(LK_GROW(seats->seats, &seats->capacity, seats->n + 1));
    *seat = &seats->seats[seats->n++];
    **seat = (lk_ps_seat){.worker = NO_NUMBER};
    return LK_OK;
}

/* --- cores -------------------------------------------------------------------------------------------------------- */

/* Returns whether the seat's devices may use the same cores of the same host. */
static bool ps_seats_overlap(const lk_ps_seat *seat, const lk_ps_seat *new, double patience)
{
    bool is_used = seat->state == LK_PS_SEAT_TAKEN || (seat->state == LK_PS_SEAT_KEPT && seat->silence < patience);
    return is_used && strcmp(seat->host, new->host) == 0 && new->first_core < seat->first_core + seat->devices &&
           seat->first_core < new->first_core + new->devices;
}

void lk__ps_seats_keep(lk_ps_seats *seats, lk_ps_seat *seat, const lk_ps_join *join, double patience)
{
    lk_ps_seat new = {.worker = NO_NUMBER, .state = LK_PS_SEAT_KEPT, .nonce = join->nonce, .devices = join->devices};
    memcpy(new.host, join->host, sizeof new.host);
    for (int i = 0; i < seats->n; i++)
        if (ps_seats_overlap(&seats->seats[i], &new, patience)) {
            new.first_core = seats->seats[i].first_core + seats->seats[i].devices;
            i = -1; /* a seat before this one may overlap now */
        }
    *seat = new;
}

void lk__ps_seats_number(lk_ps_seats *seats, lk_ps_seat *seat)
{
    if (seat->worker == NO_NUMBER)
        seat->worker = seats->workers++;
}
