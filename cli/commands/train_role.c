#include "cli/commands/train_role.h"

#include "cli/interrupts.h"

#include <stdio.h>

static void train_role_interrupt_server(void *server)
{
    lk_parameter_server_interrupt(server);
}

lk_status cli_serve_parameters(const lk_train_config *config)
{
    cli_catch_interrupts(train_role_interrupt_server);
    lk_parameter_server *server = lk_parameter_server_new(config);
    cli_set_work(server);
    lk_status status = server ? lk_parameter_server_run(server) : lk_error_status();
    cli_set_work(NULL);
    lk_parameter_server_release(server);
    return status;
}

lk_status cli_note_late_worker(void)
{
    fprintf(stderr, "note: %s: there is no work for this worker\n", lk_error_message());
    lk_error_clear();
    return LK_OK;
}

lk_status cli_run_worker(lk_trainer *trainer)
{
    lk_train_result result;
    lk_status status = lk_trainer_work(trainer, &result);
    if (status == LK_OK)
        fprintf(stderr, "worker: %lld steps with %lld samples, %.2f s of work in %.2f s\n", (long long)result.steps,
                (long long)result.samples_seen, result.seconds, result.total_seconds);
    return status;
}

static void train_role_print_staleness(const lk_async_report *report)
{
    fputs("  staleness ", stderr);
    const char *separator = "";
    for (int s = 0; s < LK_STALENESS_BINS; s++)
        if (report->staleness[s] > 0) {
            fprintf(stderr, "%s%d%s: %lld", separator, s, s == LK_STALENESS_BINS - 1 ? " and more" : "",
                    (long long)report->staleness[s]);
            separator = ", ";
        }
    fprintf(stderr, "%s; at most %lld\n", *separator ? "" : "none", (long long)report->max_staleness);
}

void cli_print_async(const lk_trainer *trainer)
{
    const lk_async_report *r = lk_trainer_async_report(trainer);
    if (!r)
        return;
    fprintf(stderr, "  ledger    %lld updates; %lld hand-outs, %lld made again; %d worker%s joined, %d lost\n",
            (long long)r->updates, (long long)r->handed_out, (long long)r->handed_again, r->workers_joined,
            r->workers_joined == 1 ? "" : "s", r->workers_lost);
    fprintf(stderr, "            %lld pushes repeated, %lld refused; %d server restart%s, %lld updates lost\n",
            (long long)r->repeated_pushes, (long long)r->refused_pushes, r->server_restarts,
            r->server_restarts == 1 ? "" : "s", (long long)r->lost_updates);
    train_role_print_staleness(r);
}
