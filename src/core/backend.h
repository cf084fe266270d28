/* What a kind of device has to provide. backends/registry.c is the one place that lists them. */
#ifndef LK_CORE_BACKEND_H
#define LK_CORE_BACKEND_H

#include "base/mem.h"
#include "core/allocator.h"
#include "core/engine.h"
#include "core/links.h"
#include "core/op.h"

/* A table of kernels, indexed by operator. A row with run NULL, or without the dtype's bit, is absent. */
typedef struct lk_kernel_table {
    const char *name; /* "cpu", "c": what `lockstep ops` prints */
    const lk_kernel *rows;
} lk_kernel_table;

enum { LK_MAX_CHOICES = 16, LK_CHOICE_TEXT = 320, LK_CHOICE_NAME = 128 };

/* Of a call: its operator and problem as they are in a tuning, and what will run it. */
typedef struct lk_call_choice {
    const char *op; /* static; NULL: its operator has no alternatives */
    char problem[LK_CHOICE_TEXT], implementation[LK_CHOICE_NAME];
} lk_call_choice;

typedef struct lk_choices {
    /* What a choice depends on besides the problem: "instruction set avx2, oneDNN 2.6.3"; device NULL: on the first one
     * of the kind. */
    void (*describe)(const lk_device *device, char *text, size_t size);
    /* names[0 … *count): static texts, what can run `problem` of operator `op`, the choice without any tuning first.
     * LK_ERR_ARGUMENT: there is no such problem. NULL: a library chooses, and nobody else can. */
    lk_status (*list)(const char *op, const char *problem, const char **names, int *count);
    /* From any thread but the device's; may wait for it. */
    lk_status (*of_call)(const lk_call *call, lk_call_choice *choice);
} lk_choices;

enum { LK_STAMPS = 1024 };

/* Of a kind of device that works by itself, in memory of its own: its kernels only start work, which goes on in the
 * order in which it was started. */
typedef struct lk_offload {
    /* On the device's thread, after each entry: remembers the place behind what entry `sequence` of its queue has
     * started. */
    lk_status (*mark)(lk_device *device, uint64_t sequence);
    /* From any thread: waits until that is done. Errors: what became of it. */
    lk_status (*wait)(lk_device *device, uint64_t sequence);
    /* On the device's thread: what it starts next waits for what entry `sequence` of `other`, of the same kind, has
     * started, and the thread does not. */
    lk_status (*follow)(lk_device *device, lk_device *other, uint64_t sequence);

    /* Waits for everything that it has started; on the device's thread, or when there is none. */
    lk_status (*drain)(lk_device *device);

    /* Copies to memory of the process, from any thread: what the device has done before is done. */
    lk_status (*read)(lk_device *device, const void *from, void *to, size_t bytes);
    /* Copies from memory of the process, which is free when this comes back; on the device's thread. */
    lk_status (*write)(lk_device *device, void *to, const void *from, size_t bytes);
    /* Copies from `other`, this device or another one of the kind; on the device's thread. */
    lk_status (*bring)(lk_device *device, void *to, lk_device *other, const void *from, size_t bytes);

    /* For recordings, on the device's thread; NULL: it cannot tell times. Remembers when it comes to this place in its
     * work, which is one of LK_STAMPS. */
    lk_status (*stamp)(lk_device *device, int place);
    /* Waits for everything that it has started, and gives the times of places 0 … n - 1, as lk__trace_clock has them.
     */
    lk_status (*read_stamps)(lk_device *device, int n, int64_t *times);
    /* lk_device_measure_peak and lk_device_measure_copy, on the device's thread. NULL: it cannot be told. */
    lk_status (*measure_peak)(lk_device *device, lk_dtype dtype, double *flops);
    lk_status (*measure_copy)(lk_device *device, double *bytes);

    /* What could still be allocated, from any thread. */
    lk_status (*memory_left)(lk_device *device, int64_t *bytes);
    /* What calls of a further branch take for libraries, beside their operands and results. */
    lk_status (*workspace)(lk_device *device, int64_t *bytes);
} lk_offload;

/* Of a kind of device that works by itself: calls beside each other, and calls that it keeps and starts again as a
 * whole. All on the device's thread. */
typedef struct lk_graphs {
    /* What calls start from here on belongs to branch `branch`, as lk_program_branch has it; 0 in the end. */
    lk_status (*branch)(lk_device *device, int branch);

    /* Between the two, what calls start is kept and not done. *graph is to be freed; NULL after a failure of `end`,
     * which is to be called in any case. */
    lk_status (*begin)(lk_device *device);
    lk_status (*end)(lk_device *device, void **graph);
    /* Starts what was kept, with `step` where a call's operator has set_step. */
    lk_status (*launch)(lk_device *device, void *graph, uint64_t step);
    void (*free)(lk_device *device, void *graph); /* NULL is fine */
} lk_graphs;

/* What no other physical device has, whichever processes see it under whichever number. */
typedef struct lk_device_identity {
    unsigned char bytes[16];
} lk_device_identity;

typedef struct lk_backend {
    const char *kind; /* "cpu" */
    /* Tables in order of preference; a kernel is the first row found for (operator, dtype): a pure function of the
     * build and the instruction set, never of load, memory or the number of devices. NULL-terminated. */
    const lk_kernel_table *const *tables;

    /* Physical devices that this process may use, and a line about one. */
    int (*available)(void);
    /* Whether it may be that there are any, which is cheaper to tell where there are none. Then `available` tells
     * whether a number of devices without a kind means this kind, before the others. NULL: it is not preferred. */
    bool (*may_be_best)(void);
    lk_status (*describe)(int index, char *text, int size);
    /* NULL: processes that have devices of this kind need not choose. */
    lk_status (*identify)(int index, lk_device_identity *identity);
    /* lk_device_describe_kind; NULL: it needs nothing but the build. */
    lk_status (*describe_kind)(char *text, int size);

    /* On the queue's own thread, bound to its core: sets what arithmetic depends on, makes *state. */
    lk_status (*open)(lk_device *device, void **state);
    /* From any thread, once no tensor is left on the device. */
    void (*close)(lk_device *device, void *state);

    /* Only in the synchronous engine, in the caller's thread around each task: enter sets what `open` has set in a
     * queue's thread, leave gives the thread back as it was. They do not nest. NULL: nothing to set. */
    void (*enter)(lk_device *device, void *state);
    void (*leave)(lk_device *device, void *state);

    /* Memory. */
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *data);
    const lk_offload *offload; /* NULL: kernels have done their work when they return, in memory of the process */
    const lk_graphs
        *graphs; /* NULL: calls run one after the other, each as it is started; else `offload` is there too */
    const lk_links_table *links; /* between its devices; NULL: they share their memory */

    /* Writes x, whose storage has a private layout, to `plain` in row-major order. On the thread of `device`, which may
     * be another device of the same kind. NULL: this backend has no layouts. */
    lk_status (*to_plain)(lk_device *device, const lk_tensor *x, void *plain);

    /* Runs `rounds` rounds of f32 multiply-adds that do not wait for each other, as wide as the processor can; gives
     * the floating-point operations that these are. On the queue's thread. NULL: lk__multiply_adds. */
    double (*multiply_adds)(int64_t rounds);

    /* lk_device_implementations, from any thread. NULL: the tables' names say it all. */
    lk_status (*implementations)(lk_device *device, lk_implementation_fn visit, void *user);

    /* Implementations that a tuning can choose among. NULL: there is one for every problem. */
    const lk_choices *choices;

    bool has_tf32; /* kernels look at lk_call.tf32 */
} lk_backend;

struct lk_device {
    lk_refcount users; /* lk_device_retain; at zero the queue closes */
    const lk_backend *backend;
    int index;
    char name[24];
    lk_queue *queue; /* NULL once closed */
    lk_allocator *allocator;
    lk_allocator *companions;    /* see lk__device_calloc */
    void *state;                 /* the backend's, made and used on the queue's thread */
    const lk_links_opts *linked; /* while links are opened: what they are asked for */
    double flops;                /* of all calls pushed; by the engine's lock */
    lk_algorithms algorithms;
    bool tf32;
    const lk_tuning *tuning; /* NULL: none */
    lk_tuning **tunings;     /* all that there were: calls and programs may be left that were pushed with one */
    int n_tunings;
    struct lk_block *arena; /* see lk__device_arena_take; on the queue's thread */
    bool arena_taken;
    struct lk_hold *hold;     /* see core/hold.h; on the queue's thread */
    struct lk_stamps *stamps; /* see core/stamps.h; on the queue's thread */

    /* Of the memory: users and storages. Pushing and running a call both count, so it is apart from what they read. */
    _Alignas(LK_ALIGNMENT) lk_refcount references;
};

/* Set by backends/registry.c: the kinds in order of preference, NULL-terminated. */
extern const lk_backend *const lk__backends[];

/* NULL: there is no such kind. */
const lk_backend *lk__backend_of_kind(const char *kind);

/* The first row for (operator, dtype); *implementation, if not NULL, is its table's name. NULL: none. */
const lk_kernel *lk__backend_kernel(const lk_backend *backend, int op, lk_dtype dtype, const char **implementation);

/* The first row that takes this call, of which device, dtype and inputs are set. NULL: none. */
const lk_kernel *lk__backend_kernel_of(const lk_call *call);

/* Memory that programs on the device use one after the other, at least `bytes`; *data NULL: another replay has taken
 * it. On the device's thread. Errors: LK_ERR_MEMORY. */
lk_status lk__device_arena_take(lk_device *device, size_t bytes, void **data);
void lk__device_arena_give_back(lk_device *device);

/* Zeroed memory of the process, for what goes along with work on the device: replays, sums. It is kept for the next who
 * asks. NULL, with the thread's error set, where there is none. From any thread, as long as the device's memory is
 * referenced. lk__device_free(device, NULL) is fine. */
void *lk__device_calloc(lk_device *device, size_t count, size_t size);
void lk__device_free(lk_device *device, void *memory);

/* Has the device's thread do `ask`, behind all that was pushed to it, and waits. Errors: those of `ask` and of
 * lk_device_sync. */
lk_status lk__device_ask(lk_device *device, lk_status (*ask)(lk_device *device, void *user), void *user);

/* lk_backend.multiply_adds for any processor, in vectors of four. */
double lk__multiply_adds(int64_t rounds);

/* Backend-internal references to a device's memory (storage holds them). */
void lk__device_retain_memory(lk_device *device);
void lk__device_release_memory(lk_device *device);

#endif
