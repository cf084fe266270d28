/* Finds the command and runs it. Prints help, and errors in the form that all commands use. */
#include "cli/bus_error.h"
#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/tensor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const cli_command *const commands[] = {
#define CLI_COMMAND(name) &cmd_##name,
#include "cli/commands.def"
#undef CLI_COMMAND
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

void cli_print_clean(const char *text, FILE *stream)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, stream);
}

int cli_text_width(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

void cli_print_padded(const char *text, int width)
{
    int missing = width - cli_text_width(text);
    cli_print_clean(text, stdout);
    printf("%*s", missing > 0 ? missing : 0, "");
}

lk_status cli_print_json(char *json, FILE *stream)
{
    if (!json)
        return lk_error_status();
    fprintf(stream, "%s\n", json);
    lk_free(json);
    return LK_OK;
}

lk_status cli_out_of_memory(void)
{
    fputs("lockstep: out of memory\n", stderr);
    return LK_ERR_MEMORY;
}

static bool main_has_complained; /* an error line was printed */

/* Prints with one call, because other processes may print to the same terminal. */
static void main_print_error_line(const char *text)
{
    char *line = NULL;
    size_t size;
    FILE *stream = open_memstream(&line, &size);
    if (!stream)
        return;
    fputs("lockstep: ", stream);
    cli_print_clean(text, stream);
    fputc('\n', stream);
    if (fclose(stream) == 0)
        fputs(line, stderr);
    free(line);
    main_has_complained = true;
}

int cli_fail(void)
{
    lk_status status = lk_error_status();
    main_print_error_line(*lk_error_message() ? lk_error_message() : lk_status_name(status));
    switch (status) {
    case LK_ERR_ARGUMENT:
        return 2;
    case LK_ERR_INTERRUPTED:
        return 130;
    default:
        return 1;
    }
}

static void main_print_error(const char *format, va_list arguments)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    main_print_error_line(text);
}

int cli_usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    main_print_error(format, arguments);
    va_end(arguments);
    return 2;
}

int cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    main_print_error(format, arguments);
    va_end(arguments);
    return 1;
}

int cli_cannot_write(const char *path, int error)
{
    fputs("lockstep: ", stderr);
    cli_print_clean(path, stderr);
    fprintf(stderr, ": cannot be written: %s\n", strerror(error));
    return 1;
}

/* A named pipe is not opened: its reader would take the close for the end of the data. Nor is a link that leads
 * nowhere, where that would make a file; lk__durable_target refuses such a link too. */
int cli_check_file(const char *option, const char *path)
{
    struct stat there;
    bool is_new = stat(path, &there) != 0;
    if (!is_new && S_ISFIFO(there.st_mode))
        return 0;
    bool leads_nowhere = is_new && lstat(path, &there) == 0;
    FILE *file = leads_nowhere ? NULL : fopen(path, "a");
    if (!file) {
        fprintf(stderr, "lockstep: --%s %s: %s: %s\n", option, path,
                leads_nowhere ? "leads nowhere" : "cannot be written", strerror(errno));
        return 1;
    }
    fclose(file);
    if (is_new)
        remove(path);
    return 0;
}

lk_status cli_parse(const cli_command *command, int argc, char **argv, void *config, int *positionals)
{
    lk_status status = lk_options_defaults(command->options, command->option_count, config);
    if (status == LK_OK)
        status = lk_options_parse(command->options, command->option_count, argc, argv, config, positionals);
    return status;
}

const cli_command *cli_find_command(const char *name)
{
    const char *names[COMMAND_COUNT];
    size_t shown = 0;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
        if (!commands[i]->is_internal)
            names[shown++] = commands[i]->name;
    }
    const char *near = lk_nearest_word(name, names, shown, sizeof names[0]);
    if (near)
        cli_usage_error("unknown command '%s': did you mean '%s'?", name, near);
    else
        cli_usage_error("unknown command '%s': see 'lockstep help' for a list", name);
    return NULL;
}

const cli_command *cli_listed_command(size_t index)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!commands[i]->is_internal && index-- == 0)
            return commands[i];
    return NULL;
}

static bool main_same_group(const lk_option *a, const lk_option *b)
{
    return a->group && b->group ? strcmp(a->group, b->group) == 0 : a->group == b->group;
}

/* Moves each option behind the last one of its group before it; the order stays as it is otherwise. */
static void main_sort_into_groups(lk_option *options, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const lk_option option = options[i];
        size_t to = i;
        while (to > 0 && !main_same_group(&options[to - 1], &option))
            to--;
        if (to == 0)
            continue;
        memmove(&options[to + 1], &options[to], (i - to) * sizeof *options);
        options[to] = option;
    }
}

const lk_option *cli_options_of(const cli_command *command, lk_option *made, size_t *count)
{
    if (!command->make_options) {
        *count = command->option_count;
        return command->options;
    }
    *count = command->make_options(made);
    main_sort_into_groups(made, *count);
    return made;
}

void cli_print_overview(FILE *stream)
{
    fputs("Usage: lockstep COMMAND [OPTION…]\n\n", stream);
    cli_print_wrapped("",
                      "Trains image-classification networks on several devices, with the same bits on any number of "
                      "them.",
                      stream);
    fputc('\n', stream);
    const cli_command *command;
    char before[32];
    for (size_t i = 0; (command = cli_listed_command(i)); i++) {
        snprintf(before, sizeof before, "  %-10s ", command->name);
        cli_print_wrapped(before, command->summary, stream);
    }
    fputs("\n'lockstep help COMMAND' describes a command and its options.\n", stream);
}

void cli_print_help(const cli_command *command, FILE *stream)
{
    lk_option made[CLI_MAX_OPTIONS];
    size_t count;
    const lk_option *options = cli_options_of(command, made, &count);
    fprintf(stream, "Usage: lockstep %s%s%s%s\n\n%s.\n", command->name, count ? " [OPTION…]" : "",
            command->arguments ? " " : "", command->arguments ? command->arguments : "", command->summary);
    if (command->examples)
        fprintf(stream, "\nExamples:\n%s", command->examples);
    if (count) {
        fputc('\n', stream);
        lk_options_help(options, count, stream);
    }
    if (command->details)
        fprintf(stream, "\n%s", command->details);
}

/* If a standard stream is closed, the next file that is opened would take its number and get our output. So /dev/null
 * takes the number, opened in the wrong direction so that reads and writes still fail. */
static void main_occupy_closed_streams(void)
{
    static const int wrong_way[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int stream = 0; stream < 3; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", wrong_way[stream]);
    }
}

bool cli_asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

static int main_run_command(int argc, char **argv)
{
    const char *name = argc < 2 ? "help" : argv[1];
    int count = argc < 2 ? 0 : argc - 2;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    const cli_command *command = cli_find_command(name);
    if (!command)
        return 2;
    if (cli_asks_for_help(count, argv + 2)) {
        cli_print_help(command, stdout);
        return 0;
    }
    return command->run(count, argv + 2);
}

/* Returns whether standard output has lost its reader, as after `lockstep ops | head -n 1`. */
static bool main_stdout_reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/* A command line, and the exit status of its command. */
typedef struct command_line {
    int argc;
    char **argv;
    int status;
} command_line;

static void *main_run_command_line(void *user)
{
    command_line *line = user;
    line->status = main_run_command(line->argc, line->argv);
    return NULL;
}

/* Runs the command on this thread or, if the stack limit (ulimit -s) is low, on one with a larger stack. */
static void main_run_on_large_stack(command_line *line)
{
    enum { LEAST_STACK = 1 << 20 };
    struct rlimit limit;
    pthread_attr_t attributes;
    pthread_t thread;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST_STACK) {
        main_run_command_line(line);
        return;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, LEAST_STACK);
    int error = pthread_create(&thread, &attributes, main_run_command_line, line);
    if (error) {
        fprintf(stderr, "lockstep: no stack of %d bytes is to be had: %s\n", LEAST_STACK, strerror(error));
        line->status = 1;
        return;
    }
    pthread_join(thread, NULL);
}

static void main_end_after_exception(void)
{
    static const char line[] = "lockstep: a C++ library gave up, most likely because there is no memory\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(1);
}

/* oneDNN's C functions throw where memory runs out, which would abort. The symbol is std::set_terminate in the C++
 * ABI. */
static void main_catch_exceptions(void)
{
    void (*(*set_terminate)(void (*)(void)))(void);
    *(void **)&set_terminate = dlsym(RTLD_DEFAULT, "_ZSt13set_terminatePFvvE");
    if (set_terminate)
        set_terminate(main_end_after_exception);
}

int main(int argc, char **argv)
{
    command_line line = {argc, argv, 0};
    main_catch_exceptions();
    main_occupy_closed_streams();
    cli_catch_bus_errors();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* writes beyond the file size limit then fail as on a full disk */
    main_run_on_large_stack(&line);
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout), is_unread = !written && main_stdout_reader_is_gone();
    if (fclose(stdout) != 0)
        written = false;
    if (!written && !is_unread && !main_has_complained)
        fprintf(stderr, "lockstep: standard output could not be written: %s\n",
                errno ? strerror(errno) : "an earlier part of it was refused");
    return line.status ? line.status : !written;
}
