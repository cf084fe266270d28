/* The interface of a kind of device. backends/registry.c is the one place that lists the kinds. */
#pragma once

#include "base/mem.h"
#include "core/allocator.h"
#include "core/engine.h"
#include "core/links.h"
#include "core/op.h"

/* A table of kernels, indexed by operator. A row is absent if its `run` is NULL or it lacks the dtype's bit. */
typedef struct lk_kernel_table {
    const char *name; /* "cpu", "c": `lockstep ops` prints it */
    const lk_kernel *rows;
} lk_kernel_table;

enum { LK_MAX_CHOICES = 16, LK_CHOICE_TEXT = 320, LK_CHOICE_NAME = 128 };

/* The operator and the problem of a call, written as in a tuning, and the implementation that will run it. */
typedef struct lk_call_choice {
    const char *op; /* static; NULL: the operator has no alternatives */
    char problem[LK_CHOICE_TEXT], implementation[LK_CHOICE_NAME];
} lk_call_choice;

typedef struct lk_choices {
    /* Describes what a choice depends on in addition to the problem: "instruction set avx2, oneDNN 2.6.3". For `device`
     * NULL it describes the first device of the kind. */
    void (*describe)(const lk_device *device, char *text, size_t size);
    /* Sets names[0 … *count) to static texts, the implementations that can run `problem` of operator `op`. The first is
     * the one that runs without a tuning. LK_ERR_ARGUMENT: there is no such problem. NULL: a library chooses. */
    lk_status (*list)(const char *op, const char *problem, const char **names, int *count);
    /* For kinds without `list`: likewise for the algorithms that a tuning can make the library take for a convolution;
     * which of them it has shows on the device, and may take seconds. From any thread but the device's. NULL: none. */
    lk_status (*list_of_library)(lk_device *device, const char *op, const char *problem, char (*names)[LK_CHOICE_NAME],
                                 int *count);
    /* From any thread but the device's; may wait for the device. LK_ERR_UNSUPPORTED: the call's tuning names a
     * library's algorithm that does not run it. */
    lk_status (*of_call)(const lk_call *call, lk_call_choice *choice);
} lk_choices;

enum { LK_STAMPS = 1024 };

/* How calls stay one for each shard where others are merged (program/merge.h). */
typedef enum lk_apart {
    LK_APART_NEVER,
    LK_APART_WHOLE_RESULTS, /* the kernel writes results that are whole storages */
    LK_APART_ANY_RESULTS,   /* it writes parts of storages too, which merged calls can read as one */
} lk_apart;

/* A kind of device with its own stream of work and its own memory (an offload device): kernels only start work,
 * and the device does it later in the order in which it was started. */
typedef struct lk_offload {
    /* On the device's thread, after each entry: marks the end of the work that entry `sequence` of its queue
     * started. */
    lk_status (*mark)(lk_device *device, uint64_t sequence);
    /* From any thread: waits until the device has done that work. Returns the error if the work failed. */
    lk_status (*wait)(lk_device *device, uint64_t sequence);
    /* On the device's thread: makes the work that it starts next wait for what entry `sequence` of `other`, a device of
     * the same kind, started. The thread itself does not wait. */
    lk_status (*follow)(lk_device *device, lk_device *other, uint64_t sequence);

    /* Waits for everything that the device was given. On the device's thread, or when it has none. */
    lk_status (*drain)(lk_device *device);

    /* Copies to memory of the process. From any thread; the caller has waited for the work that wrote `from`. */
    lk_status (*read)(lk_device *device, const void *from, void *to, size_t bytes);
    /* Copies elements from memory of the process, which may be reused on return. On the device's thread. */
    lk_status (*write)(lk_device *device, void *to, const void *from, size_t bytes, lk_dtype dtype);
    /* Copies from `other`, which is this device or another one of the kind. On the device's thread. */
    lk_status (*bring)(lk_device *device, void *to, lk_device *other, const void *from, size_t bytes);

    /* For recordings, on the device's thread: the device notes the time at which its work reaches this point, in slot
     * `slot` of LK_STAMPS. NULL: the device cannot tell times. */
    lk_status (*stamp)(lk_device *device, int slot);
    /* Waits for everything that the device was given, then reads the times in slots 0 … n - 1, in lk__nanoseconds. */
    lk_status (*read_stamps)(lk_device *device, int n, int64_t *times);
    /* Tells profilers of this kind of device that a range of this name begins on the calling thread; NULL: the last one
     * ends. NULL: there are none. */
    void (*range)(lk_device *device, const char *name);
    /* lk_device_measure_peak and lk_device_measure_copy, on the device's thread. NULL: cannot be measured. */
    lk_status (*measure_peak)(lk_device *device, lk_dtype dtype, double *flops);
    lk_status (*measure_copy)(lk_device *device, double *bytes);

    /* Bytes that could still be allocated. From any thread. */
    lk_status (*memory_left)(lk_device *device, int64_t *bytes);
    /* Bytes of library workspace that the calls of one more branch need, in addition to operands and results. */
    lk_status (*workspace)(lk_device *device, int64_t *bytes);
} lk_offload;

/* A program of merged calls, which has no branches of its own, may use the workspaces of so many. */
enum { LK_PARTS_AT_ONCE = 4 };

/* A kind of calls (lk_graphs.kind) that are started in branches next to each other, not as one. */
enum { LK_KIND_ASIDE = 1 };

typedef struct lk_graph_copy {
    void *to;
    const void *from;
    size_t bytes;
} lk_graph_copy;

/* Concurrent branches and graphs of an offload device. A graph is a series of calls that is kept and started again
 * as a whole. All on the device's thread. */
typedef struct lk_graphs {
    /* The calls started from here on belong to branch `branch` (see lk_program_branch); 0 in the end. */
    lk_status (*branch)(lk_device *device, int branch);

    /* Between `begin` and `end` the calls that are started are kept in a graph and not executed. Free *graph with
     * `free`. It is NULL if `end` fails; `end` must be called in any case. */
    lk_status (*begin)(lk_device *device);
    lk_status (*end)(lk_device *device, void **graph);
    /* Starts the graph. The last step given to `copy` keys the random numbers of calls whose operator has set_step. */
    lk_status (*launch)(lk_device *device, void *graph);
    /* Returns the kind of a call that may be started together with others of its kind; 0: it never is. */
    int (*kind)(const lk_call *call);
    /* The calls started while `on` is true are of one kind and need nothing of each other. The last ones are started
     * when it becomes false. */
    lk_status (*together)(lk_device *device, bool on);
    /* Starts copies within the device's memory, none of which overlap: a program's inputs and outputs. step: of the
     * graphs that follow; NULL: none follow. */
    lk_status (*copy)(lk_device *device, const lk_graph_copy *copies, int n, const uint64_t *step);
    void (*free)(lk_device *device, void *graph); /* NULL is fine */
} lk_graphs;

/* For a device that compiles: the calls of a program's segment become one module, which alone runs them, so that their
 * bits depend on nothing but the calls. All on the device's thread. */
typedef struct lk_modules {
    /* Makes a module of the calls, which must stay. `keeps` says which of the written storages are needed afterwards;
     * the others get no memory. */
    lk_status (*compile)(lk_device *device, const lk_call *calls, int n, bool (*keeps)(void *user, lk_storage *storage),
                         void *user, void **module);
    /* Runs it on the calls' storages. `step` keys the random numbers of calls whose operator has set_step. */
    lk_status (*run)(lk_device *device, void *module, uint64_t step);
    void (*free)(void *module);
} lk_modules;

/* Identifies a physical device: the same in every process, whatever number the process knows the device by. */
typedef struct lk_device_identity {
    unsigned char bytes[16];
} lk_device_identity;

typedef struct lk_backend {
    const char *kind; /* "cpu" */
    /* Tables in order of preference, NULL-terminated. A call runs on the first row for its operator and dtype that
     * takes it: a pure function of the build and the instruction set, never of load, memory or the number of
     * devices. */
    const lk_kernel_table *const *tables;

    /* The number of physical devices that this process may use, and a one-line description of one. */
    int (*available)(void);
    /* A cheap check whether there may be devices of this kind. If it returns true and `available` finds some, a bare
     * number of devices ("2") means this kind. The first such kind in lk__backends counts. NULL: not preferred. */
    bool (*may_be_best)(void);
    lk_status (*describe)(int index, char *text, int size);
    /* NULL: processes that have devices of this kind need not choose among them. */
    lk_status (*identify)(int index, lk_device_identity *identity);
    /* lk_device_describe_kind. NULL: the kind needs nothing but the build. */
    lk_status (*describe_kind)(char *text, int size);

    /* Returns whether `merged` may replace merged->parts calls like `one` (program/merge.h): its kernel must give each
     * of them the bits that it would have alone. NULL: it never may. */
    bool (*merges)(const lk_call *one, const lk_call *merged);
    /* Returns how calls like `one` stay as they are in passes whose other calls are merged. NULL: never. */
    lk_apart (*stays_apart)(const lk_call *one);

    /* On the queue's own thread, bound to its core: sets the arithmetic modes of the thread and makes *state. */
    lk_status (*open)(lk_device *device, void **state);
    /* From any thread, once no tensor is left on the device. */
    void (*close)(lk_device *device, void *state);

    /* Around everything that runs on another thread than the queue's, as in the synchronous engine: `enter` sets the
     * modes that `open` sets on a queue's thread, and `leave` restores that thread's. Calls do not nest. NULL: nothing
     * to set. */
    void (*enter)(lk_device *device, void *state);
    void (*leave)(lk_device *device, void *state);

    /* The device's memory; `self` is the lk_device. `alloc` returns NULL with the thread's error set. */
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *data);
    const lk_offload *offload; /* NULL: kernels are done when they return, and work in memory of the process */
    const lk_graphs *graphs;   /* NULL: calls run one after the other, each as it is started. If set, so is `offload` */
    const lk_modules *modules; /* NULL: calls run as they are. If set, there are no graphs, and no memory is cached */
    const lk_links_table *links; /* between devices of this kind; NULL: they share their memory */

    /* Copies x, whose storage has a private layout, to `plain` in row-major order. On the thread of `device`, which may
     * be another device of the same kind. NULL: this backend has no layouts. */
    lk_status (*to_plain)(lk_device *device, const lk_tensor *x, void *plain);

    /* Runs `rounds` rounds of independent f32 multiply-adds, as wide as the processor can, and returns the number of
     * floating-point operations. On the queue's thread. NULL: lk__multiply_adds is used. */
    double (*multiply_adds)(int64_t rounds);

    /* lk_device_implementations, from any thread. NULL: the names of the tables say it all. */
    lk_status (*implementations)(lk_device *device, lk_implementation_fn visit, void *user);

    /* The implementations that a tuning can choose among. NULL: there is one for every problem. */
    const lk_choices *choices;

    /* Products that are left as their factors. NULL: none are. */
    const struct lk_products *products;

    bool has_tf32; /* kernels look at lk_call.tf32 */

    /* Returns why the device multiplies bf16 faster than f32, a static text; NULL: it does not. A function of the kind
     * of device, never of a timing. NULL: no device does. */
    const char *(*bf16_is_fast)(const lk_device *device);
} lk_backend;

struct lk_device {
    lk_refcount users; /* handles of callers (lk_device_retain); at zero the queue closes */
    const lk_backend *backend;
    int index;
    char name[24];
    lk_queue *queue; /* NULL once it closes; guarded by the engine's lock */
    lk_allocator *allocator;
    lk_allocator *bookkeeping;   /* memory of the process: see lk__device_calloc */
    void *state;                 /* the backend's, made and used on the queue's thread */
    const lk_links_opts *linked; /* while links are opened: their options */
    double flops;                /* of all calls pushed; guarded by the engine's lock */
    lk_algorithms algorithms;
    bool tf32;
    const lk_tuning *tuning; /* NULL: none */
    lk_tuning **tunings;     /* every tuning ever set: pushed calls and programs may still use an older one */
    int n_tunings;
    struct lk_block *arena; /* see lk__device_arena_take; on the queue's thread */
    bool arena_taken;
    struct lk_hold *hold;     /* see core/hold.h; on the queue's thread */
    struct lk_stamps *stamps; /* see core/stamps.h; on the queue's thread */

    /* Keeps the memory alive; held by the users together and by each storage. Pushing and running a call both change
     * the count, so it has its own cache line. */
    _Alignas(LK_ALIGNMENT) lk_refcount references;
};

/* The kinds in order of preference, NULL-terminated. Defined in backends/registry.c. */
extern const lk_backend *const lk__backends[];

/* Returns the backend of a kind of device; NULL: there is no such kind. */
const lk_backend *lk__backend_of_kind(const char *kind);

/* Returns the first row for (operator, dtype); NULL: none. Sets *implementation, if given, to the name of its table. */
const lk_kernel *lk__backend_kernel(const lk_backend *backend, int op, lk_dtype dtype, const char **implementation);

/* Returns the first row that takes this call, whose device, dtype and inputs are set; NULL: none. */
const lk_kernel *lk__backend_kernel_of(const lk_call *call);

/* Takes the device's arena: at least `bytes` bytes that its programs share, one after the other. *data is NULL if
 * another replay holds the arena. On the device's thread. Errors: LK_ERR_MEMORY. */
lk_status lk__device_arena_take(lk_device *device, size_t bytes, void **data);
void lk__device_arena_give_back(lk_device *device);

/* Zeroed memory of the process for bookkeeping of work on the device, such as replays and sums; freed memory is cached.
 * NULL, with the thread's error set, if memory runs out. From any thread, while the caller holds a reference to the
 * device's memory. lk__device_free(device, NULL) is fine. */
void *lk__device_calloc(lk_device *device, size_t count, size_t size);
void lk__device_free(lk_device *device, void *memory);

/* Calls `ask` on the device's thread, after everything pushed before, and waits for it. Errors: those of `ask` and of
 * lk_device_sync. */
lk_status lk__device_ask(lk_device *device, lk_status (*ask)(lk_device *device, void *user), void *user);

/* lk_backend.multiply_adds for any processor, with vectors of four. */
double lk__multiply_adds(int64_t rounds);

/* References to a device's memory. Each storage holds one. */
void lk__device_retain_memory(lk_device *device);
void lk__device_release_memory(lk_device *device);
