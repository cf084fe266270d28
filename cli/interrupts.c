#include "interrupts.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static void (*end_work_at_hand)(void *work);
static _Atomic(void *) work_at_hand;
static bool is_supervised; /* `lockstep launch` says it once for all of its ranks */
static atomic_int interrupts;
static atomic_bool is_asked; /* cli_is_interrupted tells */
static atomic_int handlers;  /* that may hold the work at hand: a signal may come to any thread */

static void on_interrupt(int signal)
{
    (void)signal;
    static const char finishing[] = "\nlockstep: finishing this step; a second interrupt ends at once\n";
    static const char stopping[] = "\nlockstep: stopping; a second interrupt ends at once\n";
    int saved = errno;
    atomic_fetch_add(&handlers, 1);
    void *work = atomic_load(&work_at_hand);
    bool asked = atomic_load(&is_asked);
    if (atomic_fetch_add(&interrupts, 1) > 0 || (!work && !asked))
        _exit(130);
    if (work)
        end_work_at_hand(work);
    atomic_fetch_sub(&handlers, 1);
    if (!is_supervised)
        (void)!(asked ? write(STDERR_FILENO, stopping, sizeof stopping - 1)
                      : write(STDERR_FILENO, finishing, sizeof finishing - 1));
    errno = saved;
}

void cli_catch_interrupts(void (*end_work)(void *work))
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    end_work_at_hand = end_work;
    is_supervised = getenv("LOCKSTEP_HEARTBEAT");
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_set_work(void *work)
{
    atomic_store(&work_at_hand, work);
    while (atomic_load(&handlers) > 0)
        sched_yield();
    if (atomic_exchange(&is_asked, false) && work && atomic_load(&interrupts) > 0)
        end_work_at_hand(work);
}

bool cli_is_interrupted(void)
{
    atomic_store(&is_asked, true);
    return atomic_load(&interrupts) > 0;
}

void cli_stop_asking(void)
{
    atomic_store(&is_asked, false);
    if (atomic_load(&interrupts) > 0 && !atomic_load(&work_at_hand))
        _exit(130);
}
