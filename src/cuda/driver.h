/* The interface between the library and the plug-in that calls CUDA: one table of functions. The library's side, which
 * turns calls of operators into launches, includes no header of CUDA and is in every build; the plug-in,
 * liblockstep_cuda.so, knows nothing of tensors. So one binary runs with and without a GPU, and tests can load a
 * plug-in of their own.
 *
 * Pointers to data are to the GPU's memory, unless a comment says otherwise. A function that takes a stream starts work
 * there and does not wait for it; a stream runs its work in order. Functions may be called from any thread, but only
 * one thread at a time may give work to a stream. Other threads may meanwhile use its GPU's memory, make it follow an
 * event, and wait for it. */
#pragma once

#include "cuda/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increase it with every change of this file or of kernels.h: the library refuses a plug-in with another number. */
enum { LK_GPU_INTERFACE = 8 };

typedef enum lk_gpu_status {
    LK_GPU_OK,
    LK_GPU_NO_MEMORY,   /* on the GPU, or pinned on the host */
    LK_GPU_UNSUPPORTED, /* no library of this build can do that */
    LK_GPU_LOST,        /* the GPU is gone, or had an error (Xid) after which it runs nothing */
    LK_GPU_FAILED,
    LK_GPU_NO_ENGINE, /* the library does not run the problem on the engine that the request names */
    LK_GPU_BUSY,      /* not a failure: not done yet; sets no message */
} lk_gpu_status;

typedef struct lk_gpu_stream lk_gpu_stream; /* a CUDA stream, with the handles and workspaces that libraries need */
typedef struct lk_gpu_event lk_gpu_event;
typedef struct lk_gpu_graph lk_gpu_graph;

/* Callbacks around each call of CUDA that may wait for all work on a GPU, such as allocating or freeing memory, the
 * first use of a library, or making a graph. Between `begin` and `end` no NCCL exchange may be started on the GPU, and
 * with until_idle none may be in flight. NCCL's kernels wait for other ranks, and the call might keep these from
 * coming, by holding a lock or because this thread would have to start them. Pauses do not nest. */
typedef struct lk_gpu_pauses {
    void (*begin)(void *user, bool until_idle);
    void (*end)(void *user);
    void *user;
} lk_gpu_pauses;

typedef struct lk_gpu_info {
    char name[64];
    int capability[2]; /* 9, 0 */
    int multiprocessors;
    int64_t memory; /* bytes */
    char bus[32];   /* "0000:3b:00.0" */
    unsigned char uuid[16];
    uint32_t peers;    /* bit i: can reach the memory of GPU i directly */
    int64_t workspace; /* bytes that a stream allocates for cuBLASLt and cuDNN at their first use */
} lk_gpu_info;

/* The connection of two GPUs; for PCI Express, the nearest device above both. */
typedef enum lk_gpu_path_kind {
    LK_GPU_PATH_UNKNOWN, /* there is no NVML, or it does not say */
    LK_GPU_PATH_NVLINK,
    LK_GPU_PATH_BOARD,    /* both are on one board */
    LK_GPU_PATH_SWITCH,   /* one PCI Express switch */
    LK_GPU_PATH_SWITCHES, /* several switches */
    LK_GPU_PATH_BRIDGE,   /* the processor's host bridge */
    LK_GPU_PATH_NODE,     /* host bridges of one NUMA node */
    LK_GPU_PATH_SYSTEM    /* between NUMA nodes */
} lk_gpu_path_kind;

typedef struct lk_gpu_path {
    lk_gpu_path_kind kind;
    int nvlinks; /* number of NVLinks to the other GPU, or to switches */
} lk_gpu_path;

/* Texts like "13.0"; empty for a library that is missing. */
typedef struct lk_gpu_versions {
    char driver[24], runtime[24], cublas[24], cudnn[24], nvrtc[24], nccl[24];
} lk_gpu_versions;

/* Keeps plans of convolutions from one process to the next. `key` says all that a plan depends on. From any thread. */
typedef struct lk_gpu_plan_files {
    /* Calls `use` with the plan, which is valid during the call, if it was kept. */
    void (*load)(const char *key, void (*use)(void *user, const char *plan, size_t bytes), void *user);
    void (*save)(const char *key, const char *plan, size_t bytes);
} lk_gpu_plan_files;

/* The kernels of libraries, for which a library chooses an algorithm. */
typedef enum lk_gpu_library_kernel {
    LK_GPU_MATMUL,
    LK_GPU_CONV,
    LK_GPU_CONV_INPUT_GRAD,
    LK_GPU_CONV_WEIGHT_GRAD
} lk_gpu_library_kernel;

/* "cudnn:eng28_k2=3", "cublaslt:algo66_tile20", "direct" */
typedef char lk_gpu_name[128];

/* A problem, and the name of the algorithm that cuBLASLt or cuDNN runs for it. */
typedef struct lk_gpu_choice {
    lk_gpu_library_kernel kernel;
    lk_gpu_matmul matmul;   /* for LK_GPU_MATMUL; pointers only say whether there is such an operand */
    lk_gpu_conv_shape conv; /* for the others */
    bool bias;              /* for LK_GPU_CONV */
    lk_dtype dw_dtype;      /* for LK_GPU_CONV_WEIGHT_GRAD */
    lk_gpu_name name;
} lk_gpu_choice;

typedef enum lk_gpu_direction { LK_GPU_TO_GPU, LK_GPU_TO_HOST, LK_GPU_FROM_HOST } lk_gpu_direction;

/* NCCL. A communicator belongs to one rank and one stream; ranks may be streams of one thread, threads, or processes.
 * Pointers to floats are to memory of the stream's GPU; sizes are in elements. group_end starts together what its
 * thread asked for since group_begin; a thread with several ranks must ask for their exchanges in one group. */
typedef struct lk_gpu_comm lk_gpu_comm;

/* Identifies a communicator. One rank makes the id, and its bytes are sent to the other ranks. */
typedef struct lk_gpu_comm_id {
    char bytes[128];
} lk_gpu_comm_id;

typedef struct lk_gpu_nccl {
    int version; /* 22809: 2.28.9 */
    lk_gpu_status (*new_id)(lk_gpu_comm_id *id);
    lk_gpu_status (*group_begin)(void);
    /* LK_GPU_BUSY, for communicators that do not wait: the streams have got no work yet. */
    lk_gpu_status (*group_end)(void);
    /* Must be called in a group; the communicator exists from the group's end. `waits`: a group_end that needs other
     * ranks waits for them; otherwise it returns LK_GPU_BUSY, as comm_check does until all ranks have come. All
     * communicators of a group must have the same `waits`. */
    lk_gpu_status (*comm_new)(const lk_gpu_comm_id *id, int rank, int ranks, bool waits, lk_gpu_stream *stream,
                              lk_gpu_comm **comm);
    /* Must be called in a group, for communicators without an error whose streams are idle. As with comm_new the
     * group's end waits for all ranks, or returns LK_GPU_BUSY. */
    lk_gpu_status (*comm_finalize)(lk_gpu_comm *comm);
    /* Frees a finalized communicator (comm_check gives LK_GPU_OK) without waiting for other ranks; aborts any other.
     * NULL is fine. */
    void (*comm_free)(lk_gpu_comm *comm);
    /* The status of work that was started: reports an error of another rank or of the connection. Does not wait. */
    lk_gpu_status (*comm_check)(lk_gpu_comm *comm);
    /* Ends work in flight, whatever it waits for; its results are undefined. May be called from any thread while no
     * other thread is in a group. Only comm_free may follow. */
    void (*comm_abort)(lk_gpu_comm *comm);
    lk_gpu_status (*send)(lk_gpu_comm *comm, const float *x, int64_t count, int to);
    lk_gpu_status (*receive)(lk_gpu_comm *comm, float *x, int64_t count, int from);
    /* y[r * count … (r + 1) * count) = rank r's x[count]; x may be that part of y. */
    lk_gpu_status (*all_gather)(lk_gpu_comm *comm, const float *x, float *y, int64_t count);
    /* x[count] = the sum of all ranks' x, in an order that depends on the number of ranks. */
    lk_gpu_status (*all_reduce)(lk_gpu_comm *comm, float *x, int64_t count);
} lk_gpu_nccl;

typedef struct lk_gpu_driver {
    int interface; /* LK_GPU_INTERFACE */
    size_t size;   /* of this table */

    /* The message of the calling thread's last failure, in one line. */
    const char *(*error)(void);

#define LK_GPU_ENTRY(result, name, ...) result (*name)(__VA_ARGS__);
#include "cuda/driver.def"
#undef LK_GPU_ENTRY

    /* --- choices of libraries: to be called by the thread that gives the stream work --- */
    /* Sets choice->name for the problem in its other members. Errors: those of the kernel. */
    lk_gpu_status (*choose)(lk_gpu_stream *stream, lk_gpu_choice *choice);
    /* For a problem whose engine is NULL: sets names[0 … *n) to the engines that run it under the same conditions,
     * at most `most`; the first is the one that `choose` gives. Tries each, which may take seconds. */
    lk_gpu_status (*engines)(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most, int *n);
    /* Calls `visit` with every choice made for the stream so far, in no particular order. */
    void (*choices)(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user);

    /* NULL if the plug-in was built without NCCL, or the library does not answer. */
    const lk_gpu_nccl *(*nccl)(void);

    /* --- kernels.def --- */
#define LK_GPU_KERNEL(name) lk_gpu_status (*name)(lk_gpu_stream * stream, const lk_gpu_##name *arguments);
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
} lk_gpu_driver;

/* The only symbol that the plug-in exports. */
#define LK_GPU_DRIVER_SYMBOL "lk_gpu_driver_table"
typedef const lk_gpu_driver *(*lk_gpu_driver_fn)(void);

#ifdef __cplusplus
}
#endif
