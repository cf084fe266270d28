/* This process's ranks of links, with their NCCL communicators. NCCL's kernels wait for those of other ranks, which may
 * never come. So a thread watches the exchanges, and aborts them when one makes no progress. */
#pragma once

#include "core/links.h"
#include "cuda/cuda_state.h"

typedef struct lk_cuda_ranks lk_cuda_ranks;

/* Connects the ranks to those of other processes, and starts the watching thread. streams[opts->n] are the ranks'
 * streams, and must live as long. Errors: LK_ERR_ARGUMENT (LOCKSTEP_EXCHANGE_TIMEOUT), LK_ERR_DEVICE (another rank does
 * not come; the thread cannot be started), and NCCL's. */
lk_status lk__cuda_ranks_new(const lk_gpu_nccl *nccl, const lk_links_opts *opts, lk_cuda *const *streams,
                             lk_cuda_ranks **ranks);
void lk__cuda_ranks_free(lk_cuda_ranks *ranks); /* NULL is fine; the streams must be idle */

lk_gpu_comm *lk__cuda_ranks_comm(const lk_cuda_ranks *ranks, int i);

/* Begin and end a group of exchanges, which the ranks start together. The end returns errors of earlier exchanges too.
 * After an error every wait for the links or their devices fails with it, and so does every begin. */
lk_status lk__cuda_ranks_begin(lk_cuda_ranks *ranks);
lk_status lk__cuda_ranks_end(lk_cuda_ranks *ranks);

/* The callbacks of a device's lk_gpu_pauses. Between them no links of the device start an exchange: if only some GPUs
 * got their part of it, CUDA's wait would never end. until_idle: also waits until no exchange is in flight. */
void lk__cuda_pause_exchanges(lk_cuda *cuda, bool until_idle);
void lk__cuda_resume_exchanges(lk_cuda *cuda);
