/* Libraries of the project's own that are loaded when somebody asks for what they do, so that a program that does not
 * ask needs nothing of what they need. */
#ifndef LK_BASE_PLUGIN_H
#define LK_BASE_PLUGIN_H

#include <stddef.h>

typedef struct lk_plugin {
    const char *file;     /* "liblockstep_cuda.so" */
    const char *variable; /* of the environment, which names another file */
    const char *subject;  /* "CUDA": what it is for, in messages */
    const char *symbol;   /* the one function that it exports */
} lk_plugin;

/* The address of the symbol in the file that the variable names, else in `file` beside the running library or program,
 * as in a build, in the folder of an installation that belongs to either, or where the dynamic linker looks. NULL:
 * why_not says why. The plug-in stays loaded. */
void *lk__plugin_symbol(const lk_plugin *plugin, char *why_not, size_t size);

#endif
