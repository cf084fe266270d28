/* Completion of command lines in shells, made from the tables of options. */
#include "cli/text/completion.h"

#include <string.h>

/* Returns whether the command takes another command after `--`, as `launch` does. */
static bool completion_runs_another(const cli_command *command)
{
    return command->arguments && strncmp(command->arguments, "-- ", 3) == 0;
}

static void put_command_names(FILE *out)
{
    const cli_command *command;
    for (size_t i = 0; (command = cli_listed_command(i)); i++)
        fprintf(out, "%s%s", i ? " " : "", command->name);
}

/* --- bash --------------------------------------------------------------------------------------------------------- */

static const char *const bash_paths[CLI_PATHS_COUNT] = {[CLI_FOLDERS] = "-d", [CLI_FILES] = "-f"};

/* Prints bash code that offers the words and paths which complete what is typed. */
static void completion_put_bash_action(cli_completion c, FILE *out)
{
    if (*c.words || c.paths) {
        fputs("mapfile -t COMPREPLY < <(", out);
        if (*c.words)
            fprintf(out, "compgen -W '%s' -- \"$current\"%s", c.words, c.paths ? "; " : "");
        if (c.paths)
            fprintf(out, "compgen %s -- \"$current\"", bash_paths[c.paths]);
        fputs(c.paths ? ")\n            compopt -o filenames\n            " : ")\n            ", out);
    }
    fputs("return\n            ;;\n", out);
}

/* Prints one pattern of `case` for all options whose values are only paths of this kind. */
static void put_bash_path_options(const lk_option *options, size_t count, cli_paths paths, FILE *out)
{
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        cli_completion c = cli_complete_value(&options[i]);
        if (options[i].type == LK_OPTION_FLAG || *c.words || c.paths != paths)
            continue;
        fprintf(out, "%s--%s", is_first ? "        " : " | ", options[i].name);
        is_first = false;
    }
    if (is_first)
        return;
    fputs(")\n            ", out);
    completion_put_bash_action((cli_completion){.paths = paths}, out);
}

static void put_bash_command(const cli_command *command, const lk_option *options, size_t count, FILE *out)
{
    fprintf(out, "    %s)\n", command->name);
    if (count)
        fputs("        case $previous in\n", out);
    for (size_t i = 0; i < count; i++) {
        cli_completion c = cli_complete_value(&options[i]);
        if (!*c.words)
            continue;
        fprintf(out, "        --%s)\n            ", options[i].name);
        completion_put_bash_action(c, out);
    }
    for (cli_paths paths = 0; paths < CLI_PATHS_COUNT; paths++)
        put_bash_path_options(options, count, paths, out);
    if (count)
        fputs("        esac\n", out);
    fputs("        options='--help", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, options[i].type == LK_OPTION_FLAG ? " --%s --no-%s" : " --%s", options[i].name, options[i].name);
    cli_completion argument = cli_complete_argument(command);
    fprintf(out, "'\n        words='%s'\n", argument.words);
    if (argument.paths)
        fprintf(out, "        places=%s\n", bash_paths[argument.paths]);
    fputs("        ;;\n", out);
}

static void completion_begin_bash(FILE *out)
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
        if (completion_runs_another(command))
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
}

static const char bash_end[] =
    "    esac\n"
    "    [[ $current != -* ]] || words=$options\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
    "    if [[ -n $places && $current != -* ]]; then\n"
    "        mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen \"$places\" -- \"$current\")\n"
    "        compopt -o filenames\n"
    "    fi\n"
    "}\n"
    "complete -F _lockstep lockstep\n";

/* --- zsh and fish ------------------------------------------------------------------------------------------------- */

/* Prints the text up to its first semicolon, for use between single quotes. */
static void completion_put_sentence(const char *text, const char *escaped, FILE *out)
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

/* Prints the action of an _arguments specification. zsh adds no arguments to one that begins with a space. */
static void completion_put_zsh_action(cli_completion c, FILE *out)
{
    static const char *const actions[CLI_PATHS_COUNT] = {" ", "_files -/", "_files"};
    if (*c.words && c.paths)
        fprintf(out, " _lockstep_%s %s", c.paths == CLI_FILES ? "files" : "folders", c.words);
    else if (*c.words)
        fprintf(out, "(%s)", c.words);
    else
        fputs(actions[c.paths], out);
}

static void put_zsh_option(const lk_option *option, FILE *out)
{
    bool is_flag = option->type == LK_OPTION_FLAG;
    fprintf(out, " \\\n            '--%s%s[", option->name, is_flag ? "" : "=");
    completion_put_sentence(option->help, "[]:\\", out);
    fputc(']', out);
    if (!is_flag) {
        fputc(':', out);
        completion_put_sentence(option->value, ":\\", out);
        fputc(':', out);
        completion_put_zsh_action(cli_complete_value(option), out);
    }
    fputc('\'', out);
    if (is_flag)
        fprintf(out, " \\\n            '--no-%s'", option->name);
}

static void completion_begin_zsh(FILE *out)
{
    fputs("#compdef lockstep\n"
          "# Completion for lockstep in zsh, made by `lockstep completion zsh`.\n"
          "_lockstep_files()\n"
          "{\n"
          "    compadd -- \"$@\"\n"
          "    _files\n"
          "}\n"
          "_lockstep_folders()\n"
          "{\n"
          "    compadd -- \"$@\"\n"
          "    _files -/\n"
          "}\n"
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
}

static void put_zsh_command(const cli_command *command, const lk_option *options, size_t count, FILE *out)
{
    fprintf(out, "    %s)\n        _arguments '--help[describe the command]'", command->name);
    for (size_t o = 0; o < count; o++)
        put_zsh_option(&options[o], out);
    if (completion_runs_another(command)) /* the only short option */
        fputs(" \\\n            '-n[the same as --processes]:N: '", out);
    fputs(" \\\n            \"*::argument:", out);
    if (completion_runs_another(command))
        fputs("_lockstep", out);
    else
        completion_put_zsh_action(cli_complete_argument(command), out);
    fputs("\"\n        ;;\n", out);
}

static void completion_put_fish_action(cli_completion c, FILE *out)
{
    fputs(c.paths == CLI_FILES ? " -F" : " -f", out);
    if (*c.words || c.paths == CLI_FOLDERS)
        fprintf(out, " -a '%s%s%s'", c.words, *c.words && c.paths == CLI_FOLDERS ? " " : "",
                c.paths == CLI_FOLDERS ? "(__fish_complete_directories)" : "");
}

static void completion_put_fish_option(const cli_command *command, const lk_option *option, FILE *out)
{
    fprintf(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
    if (option->type != LK_OPTION_FLAG) {
        fputs(" -r", out);
        completion_put_fish_action(cli_complete_value(option), out);
    }
    fputs(" -d '", out);
    completion_put_sentence(option->help, "\\", out);
    fputs("'\n", out);
}

static void completion_begin_fish(FILE *out)
{
    fputs("# Completion for lockstep in fish, made by `lockstep completion fish`.\n"
          "complete -c lockstep -f\n",
          out);
}

static void put_fish_command(const cli_command *command, const lk_option *options, size_t count, FILE *out)
{
    fprintf(out, "complete -c lockstep -n __fish_use_subcommand -a %s -d '", command->name);
    completion_put_sentence(command->summary, "\\", out);
    fputs("'\n", out);
    for (size_t o = 0; o < count; o++)
        completion_put_fish_option(command, &options[o], out);
    if (completion_runs_another(command))
        fprintf(out,
                "complete -c lockstep -n '__fish_seen_subcommand_from %s' -s n -r -f -d 'the same as --processes'\n",
                command->name);
    if (!command->arguments)
        return;
    fprintf(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s'", command->name);
    completion_put_fish_action(cli_complete_argument(command), out);
    fputc('\n', out);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int completion_run(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*begin)(FILE *out);
        void (*put_command)(const cli_command *command, const lk_option *options, size_t count, FILE *out);
        const char *end;
    } shells[] = {{"bash", completion_begin_bash, put_bash_command, bash_end},
                  {"zsh", completion_begin_zsh, put_zsh_command, "    esac\n}\n_lockstep \"$@\"\n"},
                  {"fish", completion_begin_fish, put_fish_command, ""}};
    int count;
    if (cli_parse(&cmd_completion, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count != 1)
        return cli_usage_error("completion: for which shell? bash, zsh or fish");
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(argv[0], shells[i].name) != 0)
            continue;
        shells[i].begin(stdout);
        const cli_command *command;
        for (size_t c = 0; (command = cli_listed_command(c)); c++) {
            lk_option made[CLI_MAX_OPTIONS];
            size_t n;
            const lk_option *options = cli_options_of(command, made, &n);
            shells[i].put_command(command, options, n, stdout);
        }
        fputs(shells[i].end, stdout);
        return 0;
    }
    return cli_usage_error("unknown shell '%s': expected bash, zsh or fish", argv[0]);
}

const cli_command cmd_completion = {
    .name = "completion",
    .summary = "Print a script for bash, zsh or fish that completes command lines",
    .arguments = "bash|zsh|fish",
    .details =
        "  source <(lockstep completion bash)\n"
        "  lockstep completion fish >~/.config/fish/completions/lockstep.fish\n"
        "\n"
        "Installing lockstep puts all three where the shells look for them. Below a PREFIX of your own, zsh also\n"
        "needs fpath=(PREFIX/share/zsh/site-functions $fpath) before compinit.\n",
    .run = completion_run,
};
