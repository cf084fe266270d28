#include "cli/interrupts.h"

#include "cli/cli_clock.h"
#include "cli/launch/rank_record.h"

#include "lockstep/checkpoint.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void (*end_current_work)(void *work);
static _Atomic(void *) current_work;
static bool is_elastic;             /* a rank of an elastic training */
static bool is_supervised;          /* `lockstep launch` prints the message once for all of its ranks */
static _Atomic int64_t interrupted; /* time of the first interrupt, in milliseconds; 0: there was none */
static atomic_bool is_terminated;   /* one of them was SIGTERM */
static atomic_bool is_asked;        /* the caller asks cli_is_interrupted, which reports interrupts */
static atomic_int handlers;         /* number running; each may use the work, on any thread */

static void on_interrupt(int signal)
{
    static const char finishing[] = "\nlockstep: finishing this step; a second interrupt ends at once\n";
    static const char stopping[] = "\nlockstep: stopping; a second interrupt ends at once\n";
    int saved = errno;
    atomic_fetch_add(&handlers, 1);
    void *work = atomic_load(&current_work);
    bool asked = atomic_load(&is_asked);
    if (signal == SIGTERM)
        atomic_store(&is_terminated, true);
    int64_t now = cli_milliseconds(), first = 0;
    bool is_first = atomic_compare_exchange_strong(&interrupted, &first, now);
    bool is_same_request = !is_first && now - first < CLI_SAME_REQUEST_MS;
    if (!is_same_request && (!is_first || (!work && !asked)))
        _exit(cli_interrupted_status());
    if (work)
        end_current_work(work);
    atomic_fetch_sub(&handlers, 1);
    if (is_first && !is_supervised)
        (void)!(asked ? write(STDERR_FILENO, stopping, sizeof stopping - 1)
                      : write(STDERR_FILENO, finishing, sizeof finishing - 1));
    errno = saved;
}

void cli_catch_interrupts(void (*end_work)(void *work))
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    end_current_work = end_work;
    is_elastic = getenv(LK_MEMORY_VARIABLE);
    is_supervised = getenv("LOCKSTEP_HEARTBEAT");
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_set_work(void *work)
{
    atomic_store(&current_work, work);
    while (atomic_load(&handlers) > 0)
        sched_yield();
    if (atomic_exchange(&is_asked, false) && work && atomic_load(&interrupted) > 0)
        end_current_work(work);
}

bool cli_is_interrupted(void)
{
    atomic_store(&is_asked, true);
    return atomic_load(&interrupted) > 0;
}

void cli_stop_asking(void)
{
    atomic_store(&is_asked, false);
    if (atomic_load(&interrupted) > 0 && !atomic_load(&current_work))
        _exit(cli_interrupted_status());
}

void cli_ignore_interrupts(void)
{
    if (!is_supervised)
        return;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
}

int cli_interrupted_status(void)
{
    return is_elastic && atomic_load(&is_terminated) ? CLI_RANK_LEFT : CLI_RANK_INTERRUPTED;
}
