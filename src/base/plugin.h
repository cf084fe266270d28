/* Plug-ins: libraries of this project that are loaded on first use, so that a program that does not use them needs none
 * of their dependencies. */
#pragma once

#include <stddef.h>

typedef struct lk_plugin {
    const char *file;     /* "liblockstep_cuda.so" */
    const char *variable; /* environment variable that may name another file */
    const char *subject;  /* "CUDA": the subject in messages */
    const char *symbol;   /* the only function that it exports */
} lk_plugin;

/* Loads the plug-in and returns the address of its symbol. It loads the file that the variable names. Otherwise it
 * tries `file` next to the running library or program, as in a build; then in the folder of the installation that
 * either belongs to; then wherever the dynamic linker looks. NULL: why_not receives the reason. The plug-in stays
 * loaded. */
void *lk__plugin_symbol(const lk_plugin *plugin, char *why_not, size_t size);
