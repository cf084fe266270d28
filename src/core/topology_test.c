/* Cores are discovered once per process, so each test runs in its own process. */
#include "core/topology.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* If the condition is false, prints it and ends the child process. */
#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

static void run_in_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static cpu_set_t allowed(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
}

static int last_allowed_cpu(void)
{
    cpu_set_t set = allowed();
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            last = cpu;
    CHECK(last >= 0);
    return last;
}

static void restrict_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

typedef struct description {
    int cpu, core, package, node;
} description;

static int number_after(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found ? atoi(found + strlen(name)) : -1;
}

static description describe(int core)
{
    char text[128];
    CHECK(lk__topology_describe(core, text, sizeof text) == LK_OK);
    CHECK(strncmp(text, "CPU ", 4) == 0);
    return (description){number_after(text, "CPU "), number_after(text, ", core "), number_after(text, ", package "),
                         number_after(text, ", NUMA node ")};
}

static int system_number(int cpu, const char *name)
{
    char path[96];
    int number = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &number) != 1)
            number = -1;
        fclose(file);
    }
    return number;
}

static void every_allowed_cpu_is_one_core(void)
{
    cpu_set_t set = allowed(), seen;
    CPU_ZERO(&seen);
    CHECK(lk__topology_cores() == CPU_COUNT(&set));
    for (int i = 0; i < lk__topology_cores(); i++) {
        description d = describe(i);
        CHECK(CPU_ISSET(d.cpu, &set) && !CPU_ISSET(d.cpu, &seen));
        CPU_SET(d.cpu, &seen);
        int core = system_number(d.cpu, "core_id"), package = system_number(d.cpu, "physical_package_id");
        CHECK(core < 0 || d.core == core);
        CHECK(package < 0 || d.package == package);
    }
}

static int same_core_before(int i)
{
    int before = 0;
    description d = describe(i);
    for (int j = 0; j < i; j++) {
        description e = describe(j);
        before += d.core >= 0 && d.core == e.core && d.package == e.package;
    }
    return before;
}

static void a_core_is_shared_only_once_all_are_taken(void)
{
    for (int i = 1; i < lk__topology_cores(); i++)
        CHECK(same_core_before(i) >= same_core_before(i - 1));
}

static void a_reduced_cpu_set_is_respected(void)
{
    int cpu = last_allowed_cpu();
    restrict_to(cpu);
    CHECK(lk__topology_cores() == 1);
    CHECK(describe(0).cpu == cpu);
}

static void *ask_from_a_bound_thread(void *cores)
{
    restrict_to(last_allowed_cpu());
    *(int *)cores = lk__topology_cores();
    return NULL;
}

static void the_process_counts_not_the_thread_that_asks(void)
{
    cpu_set_t set = allowed();
    pthread_t thread;
    int cores = 0;
    CHECK(pthread_create(&thread, NULL, ask_from_a_bound_thread, &cores) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cores == CPU_COUNT(&set));
}

static void binding_takes_cores_in_turn(void)
{
    int cores = lk__topology_cores();
    for (int i = 0; i < 2 * cores + 1; i++) {
        lk__topology_bind(i);
        cpu_set_t set = allowed();
        CHECK(CPU_COUNT(&set) == 1);
        CHECK(CPU_ISSET(describe(i % cores).cpu, &set));
        CHECK(sched_getcpu() == describe(i % cores).cpu);
    }
    CHECK(lk__topology_cores() == cores);
}

static void errors_name_the_cores_there_are(void)
{
    char text[128], expected[128];
    int cores = lk__topology_cores();
    snprintf(expected, sizeof expected, "core %d: this process may use cores 0 to %d", cores, cores - 1);
    CHECK(lk__topology_describe(cores, text, sizeof text) == LK_ERR_ARGUMENT);
    CHECK(strcmp(lk_error_message(), expected) == 0);
    CHECK(lk__topology_describe(-1, text, sizeof text) == LK_ERR_ARGUMENT);
    CHECK(lk__topology_describe(0, text, 0) == LK_ERR_ARGUMENT);
}

static void a_short_text_is_cut(void)
{
    char text[6] = "xxxxx";
    CHECK(lk__topology_describe(0, text, 4) == LK_OK);
    CHECK(strcmp(text, "CPU") == 0);
    CHECK(text[4] == 'x');
}

#define CHILD_TEST(body)                  \
    static void test_##body(void **state) \
    {                                     \
        (void)state;                      \
        run_in_child(body);               \
    }
CHILD_TEST(every_allowed_cpu_is_one_core)
CHILD_TEST(a_core_is_shared_only_once_all_are_taken)
CHILD_TEST(a_reduced_cpu_set_is_respected)
CHILD_TEST(the_process_counts_not_the_thread_that_asks)
CHILD_TEST(binding_takes_cores_in_turn)
CHILD_TEST(errors_name_the_cores_there_are)
CHILD_TEST(a_short_text_is_cut)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allowed_cpu_is_one_core),
        cmocka_unit_test(test_a_core_is_shared_only_once_all_are_taken),
        cmocka_unit_test(test_a_reduced_cpu_set_is_respected),
        cmocka_unit_test(test_the_process_counts_not_the_thread_that_asks),
        cmocka_unit_test(test_binding_takes_cores_in_turn),
        cmocka_unit_test(test_errors_name_the_cores_there_are),
        cmocka_unit_test(test_a_short_text_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
