/* The ranks of links that are here, as NCCL knows them. NCCL's kernels wait for those of the other ranks, so what they
 * wait for may never come: a thread looks after them, and ends all of an exchange that stands still. */
#ifndef LK_CUDA_CUDA_RANKS_H
#define LK_CUDA_CUDA_RANKS_H

#include "core/links.h"
#include "cuda/cuda_state.h"

typedef struct lk_cuda_ranks lk_cuda_ranks;

/* Connects ranks whose streams these are, [opts->n], and begins to look after them; they have to live as long. Errors:
 * LK_ERR_ARGUMENT (LOCKSTEP_EXCHANGE_TIMEOUT), LK_ERR_DEVICE (another rank does not come; no thread), what NCCL says.
 */
lk_status lk__cuda_ranks_new(const lk_gpu_nccl *nccl, const lk_links_opts *opts, lk_cuda *const *streams,
                             lk_cuda_ranks **ranks);
void lk__cuda_ranks_free(lk_cuda_ranks *ranks); /* NULL is fine; the streams must be idle */

lk_gpu_comm *lk__cuda_ranks_comm(const lk_cuda_ranks *ranks, int i);

/* Around what the ranks do together: an error of the end is that of all that was started before, and is what everybody
 * is told from then on who waits for the links or the devices. Nothing is begun after one. */
lk_status lk__cuda_ranks_begin(lk_cuda_ranks *ranks);
lk_status lk__cuda_ranks_end(lk_cuda_ranks *ranks);

/* lk_gpu_pauses of a device: no links of the device start an exchange meanwhile, which would be one GPU's part without
 * another's. is_idle: nor is one under way. */
void lk__cuda_pause_exchanges(lk_cuda *cuda, bool is_idle);
void lk__cuda_resume_exchanges(lk_cuda *cuda);

#endif
