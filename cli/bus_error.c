#include "cli/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Reads a hexadecimal number at *text, and moves behind it and the character that follows. */
static uintptr_t bus_error_take_number(const char **text)
{
    static const char digits[] = "0123456789abcdef";
    uintptr_t number = 0;
    for (const char *digit; **text && (digit = strchr(digits, **text)); (*text)++)
        number = number * 16 + (uintptr_t)(digit - digits);
    if (**text)
        (*text)++;
    return number;
}

/* Returns the file that a line of /proc/self/maps, "BEGIN-END rw-p … /path", maps at the address, or NULL. */
static const char *bus_error_file(const char *line, uintptr_t address)
{
    uintptr_t begin = bus_error_take_number(&line), end = bus_error_take_number(&line);
    return begin <= address && address < end ? strchr(line, '/') : NULL;
}

/* Finds the file that is mapped at the address. Uses only what a signal handler may. */
static const char *bus_error_find(uintptr_t address, char *line, size_t size)
{
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const char *file = NULL;
    size_t n = 0;
    char c;
    while (!file && maps >= 0 && read(maps, &c, 1) == 1) {
        if (c != '\n') {
            if (n + 1 < size)
                line[n++] = c;
            continue;
        }
        line[n] = '\0';
        file = bus_error_file(line, address);
        n = 0;
    }
    return file ? file : "a file";
}

/* Another kind of this signal, or one that another process sends, ends the program as usual when the handler returns.
 */
static void on_bus_error(int number, siginfo_t *about, void *context)
{
    static const char before[] = "lockstep: ",
                      after[] = ": has become shorter since it was opened, or there is no room for it\n";
    char line[4352];
    (void)context;
    if (about->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    const char *file = bus_error_find((uintptr_t)about->si_addr, line, sizeof line);
    (void)!write(STDERR_FILENO, before, sizeof before - 1);
    (void)!write(STDERR_FILENO, file, strlen(file));
    (void)!write(STDERR_FILENO, after, sizeof after - 1);
    _exit(1);
}

void cli_catch_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
