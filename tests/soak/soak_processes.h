/* Processes of an attempt: starting them, finding those that they start, and looking at one that hangs. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum { SOAK_MAX_ARGUMENTS = 256, SOAK_MAX_PROCESSES = 128 };

/* A command line with the variables of its environment that are set for it. */
typedef struct soak_command {
    int argument_count, variable_count;
    char *arguments[SOAK_MAX_ARGUMENTS + 1]; /* ended by NULL */
    char *variables[16];                     /* NAME=VALUE */
} soak_command;

void soak_command_add(soak_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void soak_command_set(soak_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void soak_command_print(const soak_command *command, FILE *stream);
void soak_command_free(soak_command *command);

typedef struct soak_start {
    const char *folder;      /* to run in */
    const char *name;        /* of its files NAME.out and NAME.err, in the folder */
    int output;              /* descriptor of standard output in place of NAME.out; below 0: none */
    long long address_bytes; /* limit on the address space; 0: none */
    long long file_bytes;    /* limit on the size of a file; 0: none */
} soak_start;

/* Returns the process, or ends the program if there can be none. */
pid_t soak_process_start(const soak_command *command, const soak_start *how);

/* All living descendants of this process, itself not counted, zombies neither. Orphans among them belong to this
 * process once soak_processes_adopt was called. */
int soak_processes_list(pid_t found[SOAK_MAX_PROCESSES]);
void soak_processes_adopt(void);

/* Writes the arguments of a process with spaces between them. Returns false if it has ended. */
bool soak_process_arguments(pid_t process, char *text, size_t size);

/* Prints the stacks of a process's threads. */
void soak_process_print_stacks(pid_t process, FILE *stream);

/* Kills all descendants and waits for their end. */
void soak_processes_end(void);

/* Seconds of a clock that nobody sets. */
double soak_seconds(void);
void soak_sleep(double seconds);
