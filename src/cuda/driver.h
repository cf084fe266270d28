/* Between the library and the plug-in that speaks to CUDA: one table of functions. The library's side, which turns
 * calls of operators into launches, includes nothing of CUDA and is in every build; the plug-in, liblockstep_cuda.so,
 * knows nothing of tensors. So one binary runs with and without a GPU, and tests can put another plug-in in its place.
 *
 * Data is memory of the GPU where nothing else is said. A function that takes a stream starts work there and does not
 * wait for it; what a stream is given runs in that order. Functions may be called from any thread, but a stream is
 * given things by one thread at a time; beside that one, others may use its GPU's memory, have it follow an event, and
 * wait for it. */
#ifndef LK_CUDA_DRIVER_H
#define LK_CUDA_DRIVER_H

#include "cuda/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this file and with kernels.h: a plug-in of another build is refused. */
enum { LK_GPU_INTERFACE = 1 };

typedef enum lk_gpu_status {
    LK_GPU_OK,
    LK_GPU_NO_MEMORY,   /* of the GPU, or pinned */
    LK_GPU_UNSUPPORTED, /* no library here can do that */
    LK_GPU_LOST,        /* the GPU is gone, or has met an error after which nothing runs on it (Xid) */
    LK_GPU_FAILED,
    LK_GPU_BUSY, /* no failure: it is not done yet; there is no text */
} lk_gpu_status;

typedef struct lk_gpu_stream lk_gpu_stream; /* a CUDA stream, with what libraries need beside it */
typedef struct lk_gpu_event lk_gpu_event;
typedef struct lk_gpu_graph lk_gpu_graph;

/* What the plug-in calls around whatever of CUDA's waits for all that was started on a GPU, or may: memory of the GPU
 * or of the host that is given back, the first steps of libraries, a graph that is made. Between the two no exchange of
 * NCCL's is started there, and with is_idle none is under way: its kernels wait for other ranks, which what is called
 * may keep from coming, by a lock or because this thread would have to start them. They do not nest. */
typedef struct lk_gpu_pauses {
    void (*begin)(void *user, bool is_idle);
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
    int64_t workspace; /* bytes that a stream takes for cuBLASLt and cuDNN when it runs them first */
} lk_gpu_info;

/* What lies between two GPUs; of PCI Express, how far up their common ancestor is. */
typedef enum lk_gpu_path_kind {
    LK_GPU_PATH_UNKNOWN, /* NVML is not there, or does not say */
    LK_GPU_PATH_NVLINK,
    LK_GPU_PATH_BOARD,    /* they are on one */
    LK_GPU_PATH_SWITCH,   /* PCI Express */
    LK_GPU_PATH_SWITCHES, /* several of them */
    LK_GPU_PATH_BRIDGE,   /* the processor's */
    LK_GPU_PATH_NODE,     /* bridges of one NUMA node */
    LK_GPU_PATH_SYSTEM    /* between NUMA nodes */
} lk_gpu_path_kind;

typedef struct lk_gpu_path {
    lk_gpu_path_kind kind;
    int nvlinks; /* that lead there, or to switches */
} lk_gpu_path;

/* Texts like "13.0"; empty where there is no such library. */
typedef struct lk_gpu_versions {
    char driver[24], runtime[24], cublas[24], cudnn[24], nccl[24];
} lk_gpu_versions;

/* What cuBLASLt or cuDNN runs for a problem. Pointers in `matmul` say no more than whether there is such an operand. */
typedef enum lk_gpu_library_kernel {
    LK_GPU_MATMUL,
    LK_GPU_CONV,
    LK_GPU_CONV_INPUT_GRAD,
    LK_GPU_CONV_WEIGHT_GRAD
} lk_gpu_library_kernel;

typedef struct lk_gpu_choice {
    lk_gpu_library_kernel kernel;
    lk_gpu_matmul matmul;   /* of LK_GPU_MATMUL */
    lk_gpu_conv_shape conv; /* of the others */
    bool bias;              /* of LK_GPU_CONV */
    lk_dtype dw_dtype;      /* of LK_GPU_CONV_WEIGHT_GRAD */
    char name[128];         /* "cudnn:eng28_k2=3", "cublaslt:algo66_tile20", "direct" */
} lk_gpu_choice;

typedef enum lk_gpu_direction { LK_GPU_TO_GPU, LK_GPU_TO_HOST, LK_GPU_FROM_HOST } lk_gpu_direction;

/* NCCL. A communicator is one rank's, on one stream; ranks may be streams of one thread, threads or processes. Pointers
 * to floats are to memory of the stream's GPU; sizes are of elements. What is asked for between group_begin and
 * group_end, of one thread, is started together by group_end: of several ranks in one thread it has to be. */
typedef struct lk_gpu_comm lk_gpu_comm;

/* Names a communicator that is to be made. Bytes, for whoever hands them to the other ranks. */
typedef struct lk_gpu_comm_id {
    char bytes[128];
} lk_gpu_comm_id;

typedef struct lk_gpu_nccl {
    int version; /* 22809: 2.28.9 */
    lk_gpu_status (*new_id)(lk_gpu_comm_id *id);
    lk_gpu_status (*group_begin)(void);
    /* LK_GPU_BUSY, of communicators that do not wait: nothing was given to the streams yet. */
    lk_gpu_status (*group_end)(void);
    /* In a group, at whose end there is a communicator. waits: the end of a group waits for the other ranks, where it
     * has to; else it gives LK_GPU_BUSY, and comm_check does until all have come. Of one group all are alike. */
    lk_gpu_status (*comm_new)(const lk_gpu_comm_id *id, int rank, int ranks, bool waits, lk_gpu_stream *stream,
                              lk_gpu_comm **comm);
    /* In a group, of ranks without an error whose streams are idle; as comm_new it waits for all ranks, or gives
     * LK_GPU_BUSY. */
    lk_gpu_status (*comm_finalize)(lk_gpu_comm *comm);
    /* One that has finalized, as comm_check says, leaves without waiting for anybody; any other is aborted. NULL is
     * fine. */
    void (*comm_free)(lk_gpu_comm *comm);
    /* What has become of work that was started: an error of another rank, or of the way there. Does not wait. */
    lk_gpu_status (*comm_check)(lk_gpu_comm *comm);
    /* Ends what is under way, whatever it waits for; what it was to write is undefined. From any thread, while no other
     * one is in a group. After it there is only comm_free. */
    void (*comm_abort)(lk_gpu_comm *comm);
    lk_gpu_status (*send)(lk_gpu_comm *comm, const float *x, int64_t count, int to);
    lk_gpu_status (*receive)(lk_gpu_comm *comm, float *x, int64_t count, int from);
    /* y[rank r's count elements] = rank r's x[count]; x may be its own place in y. */
    lk_gpu_status (*all_gather)(lk_gpu_comm *comm, const float *x, float *y, int64_t count);
    /* x[count] = the sum of all ranks', in an order that depends on how many there are. */
    lk_gpu_status (*all_reduce)(lk_gpu_comm *comm, float *x, int64_t count);
} lk_gpu_nccl;

typedef struct lk_gpu_driver {
    int interface; /* LK_GPU_INTERFACE */
    size_t size;   /* of this table */

    /* What went wrong in the calling thread last, in one line. */
    const char *(*error)(void);

#define LK_GPU_ENTRY(result, name, ...) result (*name)(__VA_ARGS__);
#include "cuda/driver.def"
#undef LK_GPU_ENTRY

    /* --- what libraries run: from the thread that gives the stream work --- */
    /* Names what the stream runs for a problem, of which all but the name is given. Errors: those of the kernel. */
    lk_gpu_status (*choose)(lk_gpu_stream *stream, lk_gpu_choice *choice);
    /* Gives `visit` everything that was chosen for the stream so far, in no particular order. */
    void (*choices)(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user);

    /* NULL where the plug-in was built without it, or the library does not answer. */
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

#endif
