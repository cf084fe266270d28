#include "cli/cli.h"
#include "cli/text/progress.h"
#include "cli/text/runs_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct runs_config {
    bool json;
    const char *out;
} runs_config;

#define AT(field) .offset = offsetof(runs_config, field)

/* clang-format off: one paragraph per option */
static const lk_option options[] = {
    {.name = "json", .type = LK_OPTION_FLAG, AT(json), .help = "with a list of runs: print one JSON object per run"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "with compare: file for the curves of accuracy, SVG or PNG (default: none)"},
};
/* clang-format on */

/* --- the list ----------------------------------------------------------------------------------------------------- */

enum { RUN, MODEL, DATA, DEVICES, EPOCHS, BEST, TOOK, STATE, COLUMNS };

static const char *const heads[COLUMNS] = {"run", "model", "data", "devices", "epochs", "best accuracy", "time", ""};

/* Columns that are left out where a terminal is too narrow, in this order. */
static const int dispensable[] = {DEVICES, TOOK, DATA, EPOCHS, MODEL};
enum { DISPENSABLE = sizeof dispensable / sizeof dispensable[0] };

typedef struct list {
    const runs_config *config;
    size_t folder; /* length of its path, which rows leave out */
    char *(*rows)[COLUMNS];
    size_t count, capacity;
    int failed; /* records that could not be read */
} list;

static lk_status runs_add_row(list *l, const lk_run *run)
{
    char name[4200], epochs[CLI_NUMBER], best[CLI_BEST], took[CLI_TIME];
    if (l->count == l->capacity) {
        size_t capacity = 2 * l->capacity + 16;
        char *(*grown)[COLUMNS] = realloc(l->rows, capacity * sizeof *grown);
        if (!grown)
            return cli_out_of_memory();
        l->rows = grown;
        l->capacity = capacity;
    }
    cli_run_name(run->path, name, sizeof name);
    const char *shown = strlen(name) > l->folder ? name + l->folder + 1 : ".";
    snprintf(epochs, sizeof epochs, "%" PRId64, lk_run_last_epoch(run));
    const char *const texts[COLUMNS] = {[RUN] = shown,
                                        [MODEL] = cli_run_setting(run, "model"),
                                        [DATA] = cli_run_setting(run, "data"),
                                        [DEVICES] = cli_run_setting(run, "devices in use"),
                                        [EPOCHS] = epochs,
                                        [BEST] = cli_best_text(run, best),
                                        [TOOK] = cli_time_text(run->seconds, took),
                                        [STATE] = run->finished ? "" : cli_run_state(run)};
    char **row = l->rows[l->count++];
    memset(row, 0, sizeof l->rows[0]);
    for (int c = 0; c < COLUMNS; c++)
        if (!(row[c] = strdup(texts[c])))
            return cli_out_of_memory();
    return LK_OK;
}

/* Reports records that cannot be read, and goes on with the others. */
static lk_status runs_visit(void *user, const char *path)
{
    list *l = user;
    lk_run *run;
    lk_status status = lk_run_read(path, &run);
    if (status == LK_OK) {
        status = l->config->json ? cli_print_json(lk_run_json(run), stdout) : runs_add_row(l, run);
        lk_run_release(run);
        return status;
    }
    if (status == LK_ERR_MEMORY)
        return status;
    cli_fail();
    lk_error_clear();
    l->failed = 1;
    return LK_OK;
}

/* Prints no column of width 0. */
static void runs_print_row(char *const row[COLUMNS], const int widths[COLUMNS])
{
    int last = COLUMNS - 1;
    while (last > 0 && (widths[last] == 0 || !*row[last]))
        last--;
    for (int c = 0; c <= last; c++)
        if (widths[c] > 0)
            cli_print_padded(row[c], c < last ? widths[c] + 2 : 0);
    putchar('\n');
}

/* Sets the widths of columns that are left out to 0. */
static void runs_fit_widths(int widths[COLUMNS])
{
    int width = -2;
    for (int c = 0; c < COLUMNS; c++)
        width += widths[c] > 0 ? widths[c] + 2 : 0;
    for (int i = 0; i < DISPENSABLE && width > cli_columns(stdout); i++) {
        width -= widths[dispensable[i]] + 2;
        widths[dispensable[i]] = 0;
    }
}

static void runs_print_rows(const list *l)
{
    int widths[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        widths[c] = cli_text_width(heads[c]);
        for (size_t i = 0; i < l->count; i++) {
            int own = cli_text_width(l->rows[i][c]);
            widths[c] = own > widths[c] ? own : widths[c];
        }
    }
    runs_fit_widths(widths);
    char *head[COLUMNS];
    for (int c = 0; c < COLUMNS; c++)
        head[c] = (char *)(uintptr_t)heads[c];
    runs_print_row(head, widths);
    for (size_t i = 0; i < l->count; i++)
        runs_print_row(l->rows[i], widths);
}

static int list_runs(const char *folder, const runs_config *config)
{
    list l = {.config = config, .folder = strlen(folder)};
    while (l.folder > 1 && folder[l.folder - 1] == '/')
        l.folder--;
    fflush(stdout);
    lk_status status = lk_runs_visit(folder, runs_visit, &l);
    if (status == LK_OK && l.count > 0)
        runs_print_rows(&l);
    else if (status == LK_OK && !config->json && !l.failed)
        fprintf(stderr, "lockstep: no runs in %s: `lockstep train --log-dir` leaves them\n", folder);
    for (size_t i = 0; i < l.count; i++)
        for (int c = 0; c < COLUMNS; c++)
            free(l.rows[i][c]);
    free(l.rows);
    if (status != LK_OK)
        return lk_error_status() != LK_OK ? cli_fail() : 1;
    return l.failed;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int runs_run(int argc, char **argv)
{
    runs_config config;
    int count;
    if (cli_parse(&cmd_runs, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count > 0 && strcmp(argv[0], "compare") == 0) {
        if (count != 3)
            return cli_usage_error("runs compare: two runs are needed: lockstep runs compare logs/a logs/b");
        if (config.json)
            return cli_usage_error("--json is for a list of runs");
        return cli_compare_runs(argv[1], argv[2], config.out && *config.out ? config.out : NULL);
    }
    if (count > 1)
        return cli_usage_error("unexpected argument '%s': one folder, or: compare A B", argv[1]);
    if (config.out)
        return cli_usage_error("--out belongs to 'lockstep runs compare'");
    return list_runs(count ? argv[0] : ".", &config);
}

const cli_command cmd_runs = {
    .name = "runs",
    .summary = "List the runs below a folder, or compare two",
    .arguments = "[FOLDER | compare A B]",
    .details =
        "Lists the runs that `lockstep train --log-dir` has recorded in FOLDER (default: the current one) and below\n"
        "it, through eight folders.\n"
        "\n"
        "compare prints the settings that differ and the results, and draws the curves of both runs. A and B are\n"
        "folders, whose last run is compared, or files such as logs/epochs-2.jsonl.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = runs_run,
};
