#include "pjrt/pjrt_topology.h"
#include "base/clock.h"
#include "base/mem.h"
#include "pjrt/pjrt_client.h"

#include <math.h>
#include <string.h>

/* A topology, and what is compiled for it. */
typedef struct target {
    lk_pjrt_plugin plugin;
    lk_pjrt_topology *topology;
    lk_pjrt_executable *executable;
} target;

static lk_status topology_open(target *t, const char *name, lk_compile_result *result)
{
    const lk_pjrt_api *api = t->plugin.api;
    lk_pjrt_create_topology create = {.head = {sizeof create, NULL}, .name = name, .name_size = strlen(name)};
    LK_TRY(lk__pjrt_check(&t->plugin, "a topology", api->topology_create(&create)));
    t->topology = create.topology;
    lk_pjrt_list_topology list = {.head = {sizeof list, NULL}, .topology = t->topology};
    LK_TRY(lk__pjrt_check(&t->plugin, "a topology's devices", api->topology_list(&list)));
    result->devices = (int)list.n_descriptions;
    return LK_OK;
}

static lk_status topology_compile(target *t, const char *text, size_t size, lk_compile_result *result)
{
    lk_pjrt_program program = lk__pjrt_program(text, size);
    lk_pjrt_compile_for args = {.head = {sizeof args, NULL},
                                .topology = t->topology,
                                .program = &program,
                                .options = lk__pjrt_options,
                                .options_size = lk__pjrt_options_size};
    double began = lk__seconds();
    LK_TRY(lk__pjrt_check(&t->plugin, "compiling", t->plugin.api->compile_for(&args)));
    result->seconds = lk__seconds() - began;
    t->executable = args.executable;
    return LK_OK;
}

static lk_status topology_ask_memory(const target *t, lk_compile_result *result)
{
    lk_pjrt_memory_needs needs = {.head = {sizeof needs, NULL}, .executable = t->executable};
    LK_TRY(lk__pjrt_check(&t->plugin, "the memory that a module needs", t->plugin.api->memory_needs(&needs)));
    result->code = needs.code;
    result->arguments = needs.arguments;
    result->outputs = needs.outputs;
    result->aliased = needs.aliased;
    result->temporary = needs.temporary;
    return LK_OK;
}

static void topology_take_cost(const lk_pjrt_named *property, const char *name, double *cost)
{
    if (property->type == LK_PJRT_NAMED_FLOAT && property->name_size == strlen(name) &&
        memcmp(property->name, name, property->name_size) == 0)
        *cost = (double)property->value.real;
}

/* Plug-ins need not estimate costs. */
static void topology_ask_costs(const target *t, lk_compile_result *result)
{
    lk_pjrt_costs costs = {.head = {sizeof costs, NULL}, .executable = t->executable};
    double seconds = NAN;
    result->flops = result->bytes = result->predicted = -1;
    if (lk__pjrt_check(&t->plugin, "costs", t->plugin.api->costs(&costs)) != LK_OK) {
        lk_error_clear();
        return;
    }
    for (size_t i = 0; i < costs.n_properties; i++) {
        topology_take_cost(&costs.properties[i], "flops", &result->flops);
        topology_take_cost(&costs.properties[i], "bytes accessed", &result->bytes);
        topology_take_cost(&costs.properties[i], "optimal_seconds", &seconds);
    }
    /* XLA adds up the seconds of a module's parts, far less than one, and counts -1 for a part that it has no model of.
     */
    if (!isnan(seconds)) {
        result->untimed = seconds < 0 ? (int64_t)ceil(-seconds) : 0;
        result->predicted = seconds + (double)result->untimed;
    }
}

static lk_status topology_copy_executable(const target *t, char **executable, lk_compile_result *result)
{
    lk_pjrt_serialize args = {.head = {sizeof args, NULL}, .executable = t->executable};
    LK_TRY(lk__pjrt_check(&t->plugin, "an executable's bytes", t->plugin.api->serialize(&args)));
    *executable = lk__calloc(args.n_bytes + 1, 1);
    if (*executable)
        memcpy(*executable, args.bytes, args.n_bytes);
    if (args.destroy)
        args.destroy(args.serialized);
    result->out_bytes = args.n_bytes;
    return *executable ? LK_OK : LK_ERR_MEMORY;
}

static lk_status topology_run(target *t, const char *name, const char *text, size_t size, char **executable,
                              lk_compile_result *result)
{
    LK_TRY(topology_open(t, name, result));
    LK_TRY(topology_compile(t, text, size, result));
    LK_TRY(topology_ask_memory(t, result));
    topology_ask_costs(t, result);
    return executable ? topology_copy_executable(t, executable, result) : LK_OK;
}

lk_status lk__pjrt_compile_for(const lk_pjrt_plugin *plugin, const char *topology, const char *text, size_t size,
                               char **executable, lk_compile_result *result)
{
    target t = {.plugin = *plugin};
    lk_status status = topology_run(&t, topology, text, size, executable, result);
    lk_pjrt_destroy_executable compiled = {.head = {sizeof compiled, NULL}, .executable = t.executable};
    lk_pjrt_destroy_topology described = {.head = {sizeof described, NULL}, .topology = t.topology};
    lk_error_state kept;
    lk__error_save(&kept);
    if (t.executable)
        lk__pjrt_check(&t.plugin, "the end of an executable", t.plugin.api->executable_destroy(&compiled));
    if (t.topology)
        lk__pjrt_check(&t.plugin, "the end of a topology", t.plugin.api->topology_destroy(&described));
    lk__error_restore(&kept);
    return status;
}
