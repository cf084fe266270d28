/* Cores are found once, from the CPU set of the process's first thread: other threads may have been bound already. */
#include "core/topology.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LK_HAVE_HWLOC
#include <hwloc.h>
#endif

/* Linux itself is built for at most 8,192 CPUs. */
enum { MAX_CPUS = 8192 };

typedef struct cpu_mask {
    unsigned long words[MAX_CPUS / (8 * sizeof(unsigned long))];
} cpu_mask;

/* A hardware thread. The numbers of core, package and node are the system's; -1 if unknown. */
typedef struct hw_thread {
    int cpu, core, package, node;
    int sibling; /* hardware threads of the same core with smaller numbers */
} hw_thread;

static hw_thread threads[MAX_CPUS];
static int n_threads;
static pthread_once_t discovered = PTHREAD_ONCE_INIT;

static bool topology_mask_has(const cpu_mask *mask, int cpu)
{
    return CPU_ISSET_S((size_t)cpu, sizeof *mask, (const cpu_set_t *)(const void *)mask);
}

static void topology_mask_add(cpu_mask *mask, int cpu)
{
    CPU_SET_S((size_t)cpu, sizeof *mask, (cpu_set_t *)(void *)mask);
}

static void topology_list_cpus(void)
{
    cpu_mask mask;
    memset(&mask, 0, sizeof mask);
    if (sched_getaffinity(getpid(), sizeof mask, (cpu_set_t *)(void *)&mask) != 0)
        topology_mask_add(&mask, 0);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++)
        if (topology_mask_has(&mask, cpu))
            threads[n_threads++] = (hw_thread){.cpu = cpu, .core = -1, .package = -1, .node = -1};
}

#ifdef LK_HAVE_HWLOC

static void topology_locate(hwloc_topology_t topology, hw_thread *p)
{
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)p->cpu);
    if (!pu)
        return;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu);
    p->core = core ? (int)core->os_index : -1;
    p->package = package ? (int)package->os_index : -1;
    p->node = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : -1;
}

/* Caches, input and output, distances and the like are left out: they would only take time at every start. */
static void topology_locate_cpus(void)
{
    hwloc_topology_t topology;
    /* Without /sys, as in a bare chroot, hwloc finds nothing and says so on stderr. */
    if (access("/sys/devices/system/cpu", F_OK) != 0 || hwloc_topology_init(&topology) != 0)
        return;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) == 0)
        for (int i = 0; i < n_threads; i++)
            topology_locate(topology, &threads[i]);
    hwloc_topology_destroy(topology);
}

#else

static int topology_read_number(int cpu, const char *name)
{
    char path[96];
    int number = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &number) != 1)
        number = -1;
    fclose(file);
    return number;
}

/* A NUMA node's directory holds a link to each of its CPUs. */
static int topology_find_node(int cpu)
{
    enum { MAX_NODES = 64 };
    for (int node = 0; node < MAX_NODES; node++) {
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%d", node, cpu);
        if (access(path, F_OK) == 0)
            return node;
    }
    return -1;
}

static void topology_locate_cpus(void)
{
    for (int i = 0; i < n_threads; i++) {
        threads[i].core = topology_read_number(threads[i].cpu, "core_id");
        threads[i].package = topology_read_number(threads[i].cpu, "physical_package_id");
        threads[i].node = topology_find_node(threads[i].cpu);
    }
}

#endif

/* Core numbers begin anew in each package. */
static bool topology_same_core(const hw_thread *a, const hw_thread *b)
{
    return a->core >= 0 && a->core == b->core && a->package == b->package;
}

static void topology_count_siblings(void)
{
    for (int i = 1; i < n_threads; i++) {
        for (int j = i - 1; j >= 0; j--) {
            if (topology_same_core(&threads[i], &threads[j])) {
                threads[i].sibling = threads[j].sibling + 1;
                break;
            }
        }
    }
}

static int topology_compare_threads(const void *a, const void *b)
{
    const hw_thread *x = a, *y = b;
    return x->sibling != y->sibling ? x->sibling - y->sibling : x->cpu - y->cpu;
}

static void topology_discover(void)
{
    topology_list_cpus();
    topology_locate_cpus();
    topology_count_siblings();
    qsort(threads, (size_t)n_threads, sizeof *threads, topology_compare_threads);
}

int lk__topology_cores(void)
{
    pthread_once(&discovered, topology_discover);
    return n_threads;
}

static void topology_append_text(char *text, size_t size, const char *name, int number)
{
    size_t used = strlen(text);
    if (number >= 0)
        snprintf(text + used, size - used, "%s%s %d", used ? ", " : "", name, number);
}

lk_status lk__topology_describe(int core, char *text, int size)
{
    int cores = lk__topology_cores();
    if (size < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "core %d: a text of %d bytes holds no description", core, size);
    text[0] = '\0';
    if (core < 0 || core >= cores)
        LK_FAIL(LK_ERR_ARGUMENT, "core %d: this process may use cores 0 to %d", core, cores - 1);
    const hw_thread *p = &threads[core];
    topology_append_text(text, (size_t)size, "CPU", p->cpu);
    topology_append_text(text, (size_t)size, "core", p->core);
    topology_append_text(text, (size_t)size, "package", p->package);
    topology_append_text(text, (size_t)size, "NUMA node", p->node);
    return LK_OK;
}

/* Atomic, because the devices' threads read it. */
static atomic_int first_core;

void lk__topology_begin_at(int first)
{
    atomic_store(&first_core, first);
}

uint64_t lk__topology_set(void)
{
    uint64_t set = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < lk__topology_cores(); i++)
        set = (set ^ (uint64_t)threads[i].cpu) * 1099511628211u;
    return set;
}

void lk__topology_bind(int core)
{
    const hw_thread *p = &threads[(atomic_load(&first_core) + core) % lk__topology_cores()];
    cpu_mask mask;
    memset(&mask, 0, sizeof mask);
    topology_mask_add(&mask, p->cpu);
    if (sched_setaffinity(0, sizeof mask, (const cpu_set_t *)(const void *)&mask) != 0)
        lk__log(LK_LOG_WARNING, "a device's thread could not be bound to CPU %d (%s): it runs wherever it is put",
                p->cpu, strerror(errno));
}
