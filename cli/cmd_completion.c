/* Completion of command lines in shells, made from the tables of options. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

/* What comes after an option, or in the place of an argument. */
typedef enum completes { NOTHING, WORDS, FILES, FOLDERS, COMMANDS } completes;

static completes value_of(const lk_option *option)
{
    if (option->type == LK_OPTION_CHOICE)
        return WORDS;
    if (option->type != LK_OPTION_STRING)
        return NOTHING;
    if (strstr(option->value, "DIR"))
        return FOLDERS;
    return strstr(option->value, "FILE") ? FILES : NOTHING;
}

/* What the usage line calls a command's arguments: "[COMMAND]", "RUN FILE…", "[preview]". */
static completes argument_of(const cli_command *command)
{
    const char *arguments = command->arguments;
    if (!arguments)
        return NOTHING;
    if (strstr(arguments, "COMMAND"))
        return COMMANDS;
    if (strstr(arguments, "FILE"))
        return FILES;
    return strstr(arguments, "DIR") || strstr(arguments, "RUN") || strstr(arguments, "FOLDER") ? FOLDERS : NOTHING;
}

/* The words in lower case of a usage line, which stand for themselves. */
static void put_literals(const cli_command *command, FILE *out)
{
    const char *text = command->arguments ? command->arguments : "";
    while (*text) {
        size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz-");
        if (length > 1 && islower((unsigned char)text[0]))
            fprintf(out, " %.*s", (int)length, text);
        text += length ? length : 1;
    }
}

/* Which command a line is about: of `launch`, the one behind it. */
static bool runs_another(const cli_command *command)
{
    return command->arguments && strncmp(command->arguments, "-- ", 3) == 0;
}

static void put_choices(const lk_option *option, FILE *out)
{
    for (size_t i = 0; option->choices[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", option->choices[i]);
}

static void put_command_names(FILE *out)
{
    const cli_command *command;
    for (size_t i = 0; (command = cli_listed_command(i)); i++)
        fprintf(out, "%s%s", i ? " " : "", command->name);
}

/* --- bash --------------------------------------------------------------------------------------------------------- */

static const char *const bash_actions[] = {
    [NOTHING] = "return",
    [FILES] = "mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); compopt -o filenames; return",
    [FOLDERS] = "mapfile -t COMPREPLY < <(compgen -d -- \"$current\"); compopt -o filenames; return",
};

/* All options of a command whose values are of that kind, as one pattern of `case`. */
static void put_bash_values(const lk_option *options, size_t count, completes kind, FILE *out)
{
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        if (options[i].type == LK_OPTION_FLAG || value_of(&options[i]) != kind)
            continue;
        fprintf(out, "%s--%s", is_first ? "        " : " | ", options[i].name);
        is_first = false;
    }
    if (!is_first)
        fprintf(out, ")\n            %s\n            ;;\n", bash_actions[kind]);
}

static void put_bash_command(const cli_command *command, FILE *out)
{
    lk_option made[CLI_MAX_OPTIONS];
    size_t count;
    const lk_option *options = cli_options_of(command, made, &count);
    fprintf(out, "    %s)\n", command->name);
    if (count)
        fputs("        case $previous in\n", out);
    for (size_t i = 0; i < count; i++) {
        if (value_of(&options[i]) != WORDS)
            continue;
        fprintf(out, "        --%s)\n            mapfile -t COMPREPLY < <(compgen -W '", options[i].name);
        put_choices(&options[i], out);
        fputs("' -- \"$current\")\n            return\n            ;;\n", out);
    }
    for (completes kind = NOTHING; kind <= FOLDERS; kind++)
        if (kind != WORDS)
            put_bash_values(options, count, kind, out);
    if (count)
        fputs("        esac\n", out);
    fputs("        options='--help", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, options[i].type == LK_OPTION_FLAG ? " --%s --no-%s" : " --%s", options[i].name, options[i].name);
    fputs("'\n        words='", out);
    put_literals(command, out);
    completes argument = argument_of(command);
    fprintf(out, "%s'\n", argument == COMMANDS ? " '$commands'" : "");
    if (argument == FILES || argument == FOLDERS)
        fprintf(out, "        places=-%c\n", argument == FILES ? 'f' : 'd');
    fputs("        ;;\n", out);
}

static void print_bash(FILE *out)
{
    const cli_command *command;
    fputs("# Completion for lockstep in bash, made by `lockstep completion bash`.\n"
          "# shellcheck shell=bash\n"
          "_lockstep()\n"
          "{\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command='' options='' words='' places='' i\n"
          "    local commands='",
          out);
    put_command_names(out);
    fputs("'\n"
          "    COMPREPLY=()\n"
          "    # --name=value comes as three words.\n"
          "    if [[ $current == '=' ]]; then\n"
          "        current=''\n"
          "    elif [[ $previous == '=' && $COMP_CWORD -gt 1 ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in\n",
          out);
    for (size_t i = 0; (command = cli_listed_command(i)); i++)
        if (runs_another(command))
            fprintf(out, "        %s)\n            command=%s\n            continue\n            ;;\n", command->name,
                    command->name);
    fputs("        -*) continue ;;\n"
          "        esac\n"
          "        if [[ -z $command ]]; then\n"
          "            command=${COMP_WORDS[i]}\n"
          "        elif [[ ${COMP_WORDS[i - 1]} == -- && \" $commands \" == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
          "            command=${COMP_WORDS[i]}\n"
          "        fi\n"
          "    done\n"
          "    case $command in\n"
          "    '')\n"
          "        words=$commands\n"
          "        ;;\n",
          out);
    for (size_t i = 0; (command = cli_listed_command(i)); i++)
        put_bash_command(command, out);
    fputs("    esac\n"
          "    [[ $current != -* ]] || words=$options\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
          "    if [[ -n $places && $current != -* ]]; then\n"
          "        mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen \"$places\" -- \"$current\")\n"
          "        compopt -o filenames\n"
          "    fi\n"
          "}\n"
          "complete -F _lockstep lockstep\n",
          out);
}

/* --- zsh and fish ------------------------------------------------------------------------------------------------- */

/* A sentence inside '…': what comes before a range or a reason. */
static void put_sentence(const char *text, const char *escaped, FILE *out)
{
    for (const char *c = text; *c && *c != ';'; c++) {
        if (*c == '\'') {
            fputs("’", out);
            continue;
        }
        if (strchr(escaped, *c))
            fputc('\\', out);
        fputc(*c, out);
    }
}

static const char *const zsh_actions[] = {
    [NOTHING] = " ",
    [FILES] = "_files",
    [FOLDERS] = "_files -/",
    [COMMANDS] = "($commands)",
};

static void put_zsh_option(const lk_option *option, FILE *out)
{
    bool is_flag = option->type == LK_OPTION_FLAG;
    fprintf(out, " \\\n            '--%s%s[", option->name, is_flag ? "" : "=");
    put_sentence(option->help, "[]:\\", out);
    fputc(']', out);
    if (!is_flag && value_of(option) == WORDS) {
        fprintf(out, ":%s:(", option->value);
        put_choices(option, out);
        fputc(')', out);
    } else if (!is_flag) {
        fprintf(out, ":%s:%s", option->value, zsh_actions[value_of(option)]);
    }
    fputc('\'', out);
    if (is_flag)
        fprintf(out, " \\\n            '--no-%s'", option->name);
}

static void print_zsh(FILE *out)
{
    const cli_command *command;
    fputs("#compdef lockstep\n"
          "# Completion for lockstep in zsh, made by `lockstep completion zsh`.\n"
          "_lockstep()\n"
          "{\n"
          "    local -a commands=(",
          out);
    put_command_names(out);
    fputs(")\n"
          "    if ((CURRENT == 2)); then\n"
          "        compadd -a commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $words[1] in\n",
          out);
    for (size_t i = 0; (command = cli_listed_command(i)); i++) {
        lk_option made[CLI_MAX_OPTIONS];
        size_t count;
        const lk_option *options = cli_options_of(command, made, &count);
        completes argument = argument_of(command);
        fprintf(out, "    %s)\n        _arguments '--help[describe the command]'", command->name);
        for (size_t o = 0; o < count; o++)
            put_zsh_option(&options[o], out);
        fputs(" \\\n            \"*::argument:", out);
        if (runs_another(command))
            fputs("_lockstep", out);
        else if (argument == NOTHING && command->arguments) {
            fputc('(', out);
            put_literals(command, out);
            fputc(')', out);
        } else
            fputs(zsh_actions[argument], out);
        fputs("\"\n        ;;\n", out);
    }
    fputs("    esac\n}\n_lockstep \"$@\"\n", out);
}

static void put_fish_option(const cli_command *command, const lk_option *option, FILE *out)
{
    fprintf(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
    if (option->type != LK_OPTION_FLAG) {
        completes kind = value_of(option);
        fputs(" -r", out);
        if (kind == WORDS) {
            fputs(" -f -a '", out);
            put_choices(option, out);
            fputc('\'', out);
        } else if (kind == FOLDERS)
            fputs(" -f -a '(__fish_complete_directories)'", out);
        else if (kind == FILES)
            fputs(" -F", out);
        else
            fputs(" -f", out);
    }
    fputs(" -d '", out);
    put_sentence(option->help, "\\", out);
    fputs("'\n", out);
}

static void print_fish(FILE *out)
{
    const cli_command *command;
    fputs("# Completion for lockstep in fish, made by `lockstep completion fish`.\n"
          "complete -c lockstep -f\n",
          out);
    for (size_t i = 0; (command = cli_listed_command(i)); i++) {
        lk_option made[CLI_MAX_OPTIONS];
        size_t count;
        const lk_option *options = cli_options_of(command, made, &count);
        completes argument = argument_of(command);
        fprintf(out, "complete -c lockstep -n __fish_use_subcommand -a %s -d '", command->name);
        put_sentence(command->summary, "\\", out);
        fputs("'\n", out);
        for (size_t o = 0; o < count; o++)
            put_fish_option(command, &options[o], out);
        if (!command->arguments)
            continue;
        fprintf(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s' ", command->name);
        if (argument == FILES || argument == FOLDERS)
            fprintf(out, "%s\n", argument == FILES ? "-F" : "-a '(__fish_complete_directories)'");
        else {
            fputs("-a '", out);
            put_literals(command, out);
            if (argument == COMMANDS) {
                fputc(' ', out);
                put_command_names(out);
            }
            fputs("'\n", out);
        }
    }
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int run(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    int count;
    if (cli_parse(&cmd_completion, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count != 1)
        return cli_usage_error("completion: for which shell? bash, zsh or fish");
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(argv[0], shells[i].name) == 0) {
            shells[i].print(stdout);
            return 0;
        }
    }
    return cli_usage_error("unknown shell '%s': expected bash, zsh or fish", argv[0]);
}

const cli_command cmd_completion = {
    .name = "completion",
    .summary = "Print what a shell needs to complete command lines",
    .arguments = "bash|zsh|fish",
    .details = "  source <(lockstep completion bash)\n"
               "  lockstep completion fish >~/.config/fish/completions/lockstep.fish\n"
               "\n"
               "An installation has put all three where the shells look for them.\n",
    .run = run,
};
