/* As much of NCCL as the plug-in uses, between streams of one process, which may be of one thread or of several.
 *
 * $LOCKSTEP_EMULATED_NCCL: its version, as 22809, the default; "no": a library that does not answer.
 * $LOCKSTEP_EMULATED_NCCL_FAILS: the group, counted from 1, at whose end something goes wrong. */
#ifndef LK_CUDA_EMULATED_NCCL_H
#define LK_CUDA_EMULATED_NCCL_H

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
} ncclResult_t;
typedef enum ncclDataType_t { ncclFloat = 7 } ncclDataType_t;
typedef enum ncclRedOp_t { ncclSum = 0 } ncclRedOp_t;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
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

#endif
