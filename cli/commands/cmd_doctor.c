#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/build.h"
#include "lockstep/device.h"
#include "lockstep/pjrt.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void doctor_print_libraries(void)
{
    size_t count;
    const lk_component *components = lk_build_components(&count);
    char before[80];
    puts("Libraries");
    for (size_t i = 0; i < count; i++) {
        const lk_component *component = &components[i];
        snprintf(before, sizeof before, "  %-9s %-8s ", component->name,
                 component->present ? component->version : "missing");
        cli_print_wrapped(before, component->adds, stdout);
        snprintf(before, sizeof before, "  %-9s %-8s ", "", "");
        if (!component->present)
            cli_printf_wrapped(stdout, before, "to add it: apt-get install %s, then build again", component->package);
    }
}

/* Returns the value of a /proc/cpuinfo line "name   : value", without its newline, or NULL if the
 * line has another name. */
static char *doctor_cpuinfo_value(char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) != 0 || !strchr(" \t:", line[length]))
        return NULL;
    char *value = strchr(line, ':');
    if (!value)
        return NULL;
    value += strspn(value, ": \t");
    value[strcspn(value, "\n")] = '\0';
    return value;
}

/* Prints the instruction sets by which kernels choose their code. Overwrites `flags` with their names. */
static void doctor_print_instruction_sets(char *flags)
{
    static const char *const known[] = {"sse4_2",      "avx2",        "fma",      "avx512f",  "avx512bw",
                                        "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "asimd",
                                        "sve",         "bf16",        "i8mm"};
    char *end = flags;
    for (char *next, *word = strtok_r(flags, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        size_t length = strlen(word);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (strcmp(word, known[i]) != 0)
                continue;
            if (end > flags)
                *end++ = ' ';
            memmove(end, word, length);
            end += length;
        }
    }
    *end = '\0';
    cli_print_wrapped("  instruction sets: ", flags, stdout);
}

static void doctor_print_processor(void)
{
    puts("\nProcessor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t size = 0;
    bool named = false, described = false;
    while (file && !described && getline(&line, &size, file) >= 0) {
        char *model = doctor_cpuinfo_value(line, "model name");
        char *flags = model ? NULL : doctor_cpuinfo_value(line, "flags");
        if (!model && !flags)
            flags = doctor_cpuinfo_value(line, "Features");
        if (model && !named)
            cli_print_wrapped("  ", model, stdout);
        named = named || model;
        if (flags) {
            doctor_print_instruction_sets(flags);
            described = true;
        }
    }
    free(line);
    if (file)
        fclose(file);

    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        printf("  processors this process may use: %d of %ld\n", CPU_COUNT(&allowed), sysconf(_SC_NPROCESSORS_ONLN));
}

static void doctor_print_error(void)
{
    cli_print_wrapped("  ", lk_error_message(), stdout);
    lk_error_clear();
}

static void doctor_print_gpus(void)
{
    char text[2048];
    puts("\nGPUs");
    if (lk_device_describe_kind("cuda", text, sizeof text) != LK_OK) {
        doctor_print_error();
        return;
    }
    cli_print_wrapped("  ", text, stdout);
    int n = lk_device_available("cuda");
    for (int i = 0; i < n; i++) {
        char before[32];
        snprintf(before, sizeof before, "  cuda:%-4d ", i);
        if (lk_device_describe("cuda", i, text, sizeof text) == LK_OK)
            cli_print_wrapped(before, text, stdout);
    }
    if (n == 0 && lk_device_describe("cuda", 0, text, sizeof text) != LK_OK)
        doctor_print_error();
}

/* Loads a plug-in only if an option or the environment names one: it may take minutes to find that there is no
 * device. */
static void doctor_print_pjrt(const char *path, double seconds)
{
    lk_pjrt *pjrt;
    if (!path && !lk_pjrt_default_path())
        return;
    puts("\nDevices of a PJRT plug-in");
    if (lk_pjrt_find_within(path, seconds, &pjrt) != LK_OK) {
        doctor_print_error();
        return;
    }
    cli_printf_wrapped(stdout, "  ", "%s: platform %s, PJRT %d.%d", pjrt->path, pjrt->platform, pjrt->major,
                       pjrt->minor);
    if (*pjrt->version)
        printf("  %s\n", pjrt->version);
    for (int d = 0; d < pjrt->n_devices; d++)
        printf("  %s\n", pjrt->devices[d]);
    if (pjrt->n_devices == 0)
        puts("  no device");
    lk_pjrt_release(pjrt);
}

typedef struct doctor {
    const char *pjrt; /* a plug-in; NULL: none was named */
    double pjrt_timeout;
} doctor;

static const lk_option doctor_options[] = {
    {.name = "pjrt",
     .type = LK_OPTION_STRING,
     .offset = offsetof(doctor, pjrt),
     .value = "FILE",
     .help = "PJRT plug-in whose devices are listed too (default: $PJRT_PLUGIN_LIBRARY_PATH, else $TPU_LIBRARY_PATH)"},
    {.name = "pjrt-timeout",
     .type = LK_OPTION_DOUBLE,
     .offset = offsetof(doctor, pjrt_timeout),
     .default_text = "20",
     .least = 0,
     .greatest = 1e6,
     .value = "S",
     .help = "seconds to wait until the plug-in has listed its devices"},
};

static int doctor_run(int argc, char **argv)
{
    doctor config = {0};
    if (cli_parse(&cmd_doctor, argc, argv, &config, NULL) != LK_OK)
        return cli_fail();
    doctor_print_libraries();
    doctor_print_processor();
    doctor_print_gpus();
    doctor_print_pjrt(config.pjrt, config.pjrt_timeout);
    return 0;
}

const cli_command cmd_doctor = {
    .name = "doctor",
    .summary = "Show libraries of this build, what missing ones would add, the processor and the GPUs",
    .options = doctor_options,
    .option_count = sizeof doctor_options / sizeof doctor_options[0],
    .run = doctor_run,
};
