#include "base/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Folders of plug-ins in an installation (cmake/install.cmake), relative to its libraries and to its programs. */
static const char *const folders[] = {"", "lockstep/", LK_PLUGINS_FROM_PROGRAMS "/"};

typedef struct search {
    const lk_plugin *plugin;
    char *why_not;
    size_t size;
} search;

/* Gives the folder of the shared library that contains this code, or of the program. Links are resolved, since a link
 * to a program may lie anywhere. */
static void plugin_own_folder(char *folder)
{
    Dl_info own, program;
    static const char here;
    /* A program's dli_fname is what started it, maybe relative to another folder than today's. */
    bool is_library = dladdr(&here, &own) && own.dli_fname && strchr(own.dli_fname, '/') &&
                      dladdr((const void *)getauxval(AT_PHDR), &program) && own.dli_fbase != program.dli_fbase;
    if (!realpath(is_library ? own.dli_fname : "/proc/self/exe", folder))
        folder[0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* The text of dlerror begins with the name of a file: the plug-in, or a library that it needs. */
static void plugin_note_failure(const search *s)
{
    const char *message = dlerror(), *file = s->plugin->file;
    bool is_missing = message && strstr(message, "cannot open shared object file");
    bool needs_another = is_missing && strncmp(message, "lib", 3) == 0 && !strstr(message, file);
    snprintf(s->why_not, s->size, "%s", message ? message : "");
    if (!message)
        snprintf(s->why_not, s->size, "%s: cannot be loaded", file);
    if (needs_another)
        snprintf(s->why_not, s->size,
                 "%s: the plug-in for %s needs it; install it, or name its folder in LD_LIBRARY_PATH", message,
                 s->plugin->subject);
}

static void *plugin_open_in_folder(const search *s, const char *between)
{
    char folder[PATH_MAX], path[PATH_MAX + 256];
    plugin_own_folder(folder);
    if (!*folder)
        return NULL;
    snprintf(path, sizeof path, "%s/%s%s", folder, between, s->plugin->file);
    if (access(path, F_OK) != 0)
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        plugin_note_failure(s);
    return library;
}

static void *plugin_open_library(const search *s)
{
    const char *path = getenv(s->plugin->variable);
    bool is_named = path && *path;
    void *library = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !is_named && !library && !*s->why_not; i++)
        library = plugin_open_in_folder(s, folders[i]);
    if (library || *s->why_not)
        return library;
    library = dlopen(is_named ? path : s->plugin->file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        plugin_note_failure(s);
    return library;
}

void *lk__plugin_symbol(const lk_plugin *plugin, char *why_not, size_t size)
{
    search s = {plugin, why_not, size};
    *why_not = '\0';
    void *library = plugin_open_library(&s);
    void *symbol = library ? dlsym(library, plugin->symbol) : NULL;
    if (library && !symbol) {
        snprintf(why_not, size, "%s: is of another version of lockstep", plugin->file);
        dlclose(library);
    }
    return symbol;
}
