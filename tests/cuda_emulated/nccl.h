/* An emulation of the part of NCCL that the plug-in uses, between streams of one thread, of several threads, or of
 * several processes on a machine.
 *
 * $LOCKSTEP_EMULATED_NCCL: its version; 22809 by default; "no": a library that does not answer.
 * $LOCKSTEP_EMULATED_NCCL_FAILS: the group, counted from 1, whose end fails.
 * $LOCKSTEP_EMULATED_NCCL_STALLS: the group whose work stands still in the streams until it is aborted, as if another
 * rank were gone. $LOCKSTEP_EMULATED_NCCL_BREAKS: the same, and the communicators report an error.
 * $LOCKSTEP_EMULATED_NCCL_ABORTS=no: the program aborts if a communicator is aborted instead of finalized.
 * $LOCKSTEP_EMULATED_NCCL_SILENT: other processes are not told that a process has ended, as when GPUs access each
 * other's memory directly. */
#pragma once

#include <cuda_runtime.h>

typedef struct emulated_comm *ncclComm_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

typedef enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;
typedef struct ncclConfig_t {
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
    {                           \
        1                       \
    }
typedef enum ncclDataType_t { ncclFloat = 7 } ncclDataType_t;
typedef enum ncclRedOp_t { ncclSum = 0 } ncclRedOp_t;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *x, size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *x, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *x, void *y, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *x, void *y, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
