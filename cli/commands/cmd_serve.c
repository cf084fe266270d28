#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/text/repeat_text.h"

#include "lockstep/log.h"
#include "lockstep/serve.h"

typedef struct serve_config {
    int64_t port;
    const char *host;
} serve_config;

#define AT(field) .offset = offsetof(serve_config, field)

/* clang-format off: one paragraph per option */
static const lk_option options[] = {
    {.name = "port",
     .type = LK_OPTION_INT64,
     AT(port),
     .default_text = "7007",
     .minimum = 0,
     .maximum = 65535,
     .value = "N",
     .help = "port to listen on; 0: any free one, which is printed"},
    {.name = "host",
     .type = LK_OPTION_STRING,
     AT(host),
     .value = "HOST",
     .help = "address of this machine to listen on; with another than a loopback address, a page needs the token that "
             "is printed (default: 127.0.0.1)"},
};
/* clang-format on */

static void serve_end(void *server)
{
    lk_page_server_stop(server);
}

static int serve_folder(const char *folder, const serve_config *config)
{
    lk_page_server *server;
    const lk_serve_opts opts = {.host = config->host && *config->host ? config->host : NULL,
                                .port = (int)config->port,
                                .command = cli_repeat_command};
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    if (lk_page_server_new(folder, &opts, &server) != LK_OK)
        return cli_fail();
    cli_catch_interrupts(serve_end);
    cli_set_work(server);
    cli_is_interrupted(); /* so that the message is that of a program that stops */
    printf("%s\n", lk_page_server_url(server));
    lk_status status = LK_OK;
    if (fflush(stdout) == 0) { /* else main says so, and nobody knows the address */
        fputs("lockstep: open this address in a browser; Ctrl-C ends the server\n", stderr);
        status = lk_page_server_run(server);
    }
    cli_set_work(NULL);
    lk_page_server_release(server);
    return status == LK_OK ? 0 : cli_fail();
}

static int serve_run(int argc, char **argv)
{
    serve_config config;
    int count;
    if (cli_parse(&cmd_serve, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count == 0)
        return cli_usage_error("serve: a folder is missing: name one below which `lockstep train --log-dir` records");
    if (count > 1)
        return cli_usage_error("unexpected argument '%s': one folder is served", argv[1]);
    return serve_folder(argv[0], &config);
}

const cli_command cmd_serve = {
    .name = "serve",
    .summary = "Show the runs below a folder in a browser, and follow those that train",
    .arguments = "FOLDER",
    .examples = "  lockstep serve logs\n"
                "  lockstep serve logs --port 0\n",
    .details =
        "Prints the address of a page that lists the runs which `lockstep train --log-dir` has recorded in FOLDER and\n"
        "below it, through eight folders: those that train first, then the newest. Each has a page of its own, as\n"
        "`lockstep report --html` writes it. Pages change while runs train. Nothing can be changed through them.\n"
        "\n"
        "Only programs on this machine can connect, unless --host names another address. Then each request needs a\n"
        "token, which is in the printed address; anybody who sees the traffic sees the token too. To look from\n"
        "another machine without that: ssh -L 7007:localhost:7007 MACHINE, and open http://localhost:7007 there.\n"
        "\n"
        "An interrupt (Ctrl-C) or SIGTERM ends it, with exit status 0.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = serve_run,
};
