/* Manual pages: lockstep.1, and one for every command that help lists. They are made from the same tables as help. */
#include "cli/cli.h"

#include "lockstep/build.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- roff --------------------------------------------------------------------------------------------------------- */

/* Escapes characters that roff interprets or replaces with typographic ones. A period or an apostrophe at the start of
 * a line would begin a roff request. */
static void manual_put_roff_char(char c, bool at_start, FILE *page)
{
    if (at_start && (c == '.' || c == '\''))
        fputs("\\&", page);
    switch (c) {
    case '\\':
        fputs("\\e", page);
        break;
    case '-':
        fputs("\\-", page);
        break;
    case '\'':
        fputs("\\(aq", page);
        break;
    case '`':
        fputs("\\(ga", page);
        break;
    case '^':
        fputs("\\(ha", page);
        break;
    case '~':
        fputs("\\(ti", page);
        break;
    default:
        fputc(c, page);
    }
}

/* Replaces ellipses with "...", because man drops characters that the locale does not have. The texts have no other
 * characters beyond ASCII. */
static void manual_put_roff_text(const char *text, size_t length, FILE *page)
{
    static const char ellipsis[] = "…";
    for (size_t i = 0; i < length; i++) {
        bool is_ellipsis = strncmp(text + i, ellipsis, sizeof ellipsis - 1) == 0;
        if (is_ellipsis)
            fputs(i == 0 ? "\\&..." : "...", page);
        else
            manual_put_roff_char(text[i], i == 0, page);
        i += is_ellipsis ? sizeof ellipsis - 2 : 0;
    }
}

static void manual_put_roff_line(const char *text, FILE *page)
{
    manual_put_roff_text(text, strlen(text), page);
    fputc('\n', page);
}

/* Lets roff fill paragraphs, and keeps indented lines as they are. */
static void manual_put_paragraphs(const char *text, FILE *page)
{
    bool is_verbatim = false;
    while (*text) {
        size_t length = strcspn(text, "\n");
        bool is_indented = length > 0 && text[0] == ' ';
        if (is_indented != is_verbatim)
            fputs(is_indented ? ".PP\n.nf\n" : ".fi\n", page);
        is_verbatim = is_indented;
        if (length == 0) {
            fputs(text[1] == ' ' ? "" : ".PP\n", page);
        } else {
            manual_put_roff_text(text, length, page);
            fputc('\n', page);
        }
        text += length + (text[length] == '\n');
    }
    if (is_verbatim)
        fputs(".fi\n", page);
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* Writes the page's title, LOCKSTEP-TRAIN for "train", and its NAME section. command: NULL for the page of lockstep
 * itself. */
static void manual_put_head(const char *command, const char *summary, FILE *page)
{
    fputs(".\\\" Made by lockstep from its tables of options.\n.TH LOCKSTEP", page);
    if (command) {
        fputs("\\-", page);
        for (const char *c = command; *c; c++)
            fputc(toupper((unsigned char)*c), page);
    }
    fprintf(page, " 1 \"\" \"lockstep %s\" \"User Commands\"\n.SH NAME\nlockstep", lk_build_version());
    if (command)
        fprintf(page, "\\-%s", command);
    fputs(" \\- ", page);
    fputc(tolower((unsigned char)summary[0]), page);
    manual_put_roff_line(summary + 1, page);
}

static void manual_put_exit_status(FILE *page)
{
    fputs(".SH EXIT STATUS\n.TP\n0\nAll went well.\n.TP\n1\nSomething else went wrong.\n.TP\n2\nThe command line makes "
          "no sense.\n.TP\n130\nAn interrupt ended it.\n",
          page);
}

static void put_option(const lk_option *option, FILE *page)
{
    char text[1024];
    lk_option_describe(option, text, sizeof text);
    fputs(".TP\n\\fB\\-\\-", page);
    manual_put_roff_text(option->name, strlen(option->name), page);
    fputs("\\fR", page);
    if (option->type != LK_OPTION_FLAG) {
        fputs(" \\fI", page);
        manual_put_roff_text(option->value, strlen(option->value), page);
        fputs("\\fR", page);
    }
    fputc('\n', page);
    manual_put_roff_line(text, page);
}

static void put_command(const cli_command *command, FILE *page)
{
    lk_option made[CLI_MAX_OPTIONS];
    size_t count;
    const lk_option *options = cli_options_of(command, made, &count);
    manual_put_head(command->name, command->summary, page);
    fprintf(page, ".SH SYNOPSIS\n\\fBlockstep %s\\fR", command->name);
    fputs(count ? " [\\fIOPTION\\fR...]" : "", page);
    if (command->arguments) {
        fputc(' ', page);
        manual_put_roff_text(command->arguments, strlen(command->arguments), page);
    }
    fputs("\n.SH DESCRIPTION\n", page);
    manual_put_roff_text(command->summary, strlen(command->summary), page);
    fputs(".\n", page);
    if (command->details) {
        fputs(command->details[0] == ' ' ? "" : ".PP\n", page);
        manual_put_paragraphs(command->details, page);
    }
    if (command->examples) {
        fputs(".SH EXAMPLES\n", page);
        manual_put_paragraphs(command->examples, page);
    }
    if (count)
        fputs(".SH OPTIONS\n", page);
    for (size_t i = 0; i < count; i++) {
        const char *heading = lk_option_heading(options, i);
        if (heading)
            fprintf(page, ".SS %s\n", heading);
        put_option(&options[i], page);
    }
    manual_put_exit_status(page);
    fputs(".SH SEE ALSO\n.BR lockstep (1)\n", page);
}

static void manual_put_overview(FILE *page)
{
    const cli_command *command;
    manual_put_head(NULL, "Train image-classification networks on several devices", page);
    fputs(".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n"
          "Trains image\\-classification networks on several devices, to the same bits on any number of them.\n"
          ".SH COMMANDS\n",
          page);
    for (size_t i = 0; (command = cli_listed_command(i)); i++) {
        fprintf(page, ".TP\n.BR lockstep\\-%s (1)\n", command->name);
        manual_put_roff_text(command->summary, strlen(command->summary), page);
        fputs(".\n", page);
    }
    manual_put_exit_status(page);
    fputs(
        ".SH FILES\n.TP\n\\fIPREFIX\\fR/share/doc/lockstep\n"
        "README.md, the documents that manual pages call docs/, and examples, if lockstep is installed below PREFIX.\n",
        page);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Writes the page of a command, or that of lockstep itself if `command` is NULL. Returns 0, or 1 with the error
 * printed. */
static int manual_write_page(const char *folder, const cli_command *command)
{
    char path[PATH_MAX];
    int length =
        snprintf(path, sizeof path, "%s/lockstep%s%s.1", folder, command ? "-" : "", command ? command->name : "");
    FILE *page = length < (int)sizeof path ? fopen(path, "w") : NULL;
    if (!page)
        return cli_cannot_write(path, errno);
    if (command)
        put_command(command, page);
    else
        manual_put_overview(page);
    bool is_written = !ferror(page);
    return fclose(page) == 0 && is_written ? 0 : cli_cannot_write(path, errno);
}

static int manual_run(int argc, char **argv)
{
    int count;
    if (cli_parse(&cmd_manual, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count != 1)
        return cli_usage_error("manual: one folder is needed, which the pages are written to");
    const cli_command *command;
    int status = manual_write_page(argv[0], NULL);
    for (size_t i = 0; status == 0 && (command = cli_listed_command(i)); i++)
        status = manual_write_page(argv[0], command);
    return status;
}

const cli_command cmd_manual = {
    .name = "manual",
    .summary = "Write the manual pages",
    .arguments = "DIR",
    .is_internal = true,
    .run = manual_run,
};
