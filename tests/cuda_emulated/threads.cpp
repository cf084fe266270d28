/* Runs the threads of kernels. */
#include "cuda_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

thread_local emulated_index threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

/* A thread of a block whose threads may wait for each other: a coroutine with a stack of its own. The fibers run in
 * turn, and are reused for later blocks. They are switched by _setjmp, because swapcontext makes a system call each
 * time. Turns go up and down alternately, and begin the other way in the next block, so that a barrier that is missing
 * between a write and a read shows whichever of the two threads comes first. */
struct fiber {
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    emulated_index index;
    bool ended;
};

enum { STACK_BYTES = 64 << 10, MAX_EXCHANGED = 16 };

struct barrier {
    unsigned arrived, round;
};

struct block_state {
    std::vector<std::unique_ptr<fiber>> fibers;
    unsigned alive;
    bool is_running;
    jmp_buf scheduler;
    fiber *current;
    const std::function<void()> *thread;
    barrier all;
    std::vector<barrier> warps;
    std::vector<char> exchanged; /* [thread][MAX_EXCHANGED] */
};

static thread_local block_state state;

static void yield(void)
{
    fiber *self = state.current;
    self->index = threadIdx;
    if (_setjmp(self->here) == 0)
        _longjmp(state.scheduler, 1);
    threadIdx = self->index;
}

static unsigned flat_index(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

static void meet(barrier &at, unsigned expected)
{
    unsigned round = at.round;
    if (++at.arrived == expected) {
        at.arrived = 0;
        at.round++;
        return;
    }
    while (at.round == round)
        yield();
}

static void require_together(void)
{
    if (state.is_running)
        return;
    fprintf(stderr, "emulated CUDA: a kernel whose threads wait for each other is launched with LK_GPU_RUN_TOGETHER\n");
    abort();
}

void __syncthreads(void)
{
    require_together();
    meet(state.all, state.alive);
}

static unsigned threads_of_block(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

void __syncwarp(unsigned)
{
    require_together();
    unsigned warp = flat_index() / warpSize, left = threads_of_block() - warp * warpSize;
    meet(state.warps[warp], left < 32 ? left : 32);
}

void emulated_require_aligned(const void *address, size_t alignment)
{
    if ((uintptr_t)address % alignment == 0)
        return;
    fprintf(stderr, "emulated CUDA: a kernel accesses %zu bytes at once at %p\n", alignment, address);
    abort();
}

int emulated_lane(void)
{
    return (int)(flat_index() % warpSize);
}

void *emulated_exchange(const void *mine, size_t bytes, int from_lane)
{
    static thread_local char taken[MAX_EXCHANGED];
    require_together();
    unsigned self = flat_index(), from = self / warpSize * warpSize + (unsigned)from_lane;
    memcpy(&state.exchanged[(size_t)self * MAX_EXCHANGED], mine, bytes);
    __syncwarp();
    char got[MAX_EXCHANGED];
    memcpy(got, &state.exchanged[(size_t)(from < threads_of_block() ? from : self) * MAX_EXCHANGED], bytes);
    __syncwarp();
    return memcpy(taken, got, bytes);
}

/* The main function of a fiber: runs a thread of one block, then a thread of the next block, and so on. */
static void fiber_main(void)
{
    for (;;) {
        threadIdx = state.current->index;
        (*state.thread)();
        state.current->ended = true;
        state.alive--;
        yield();
    }
}

/* Starts the new fiber, which yields until it gets its first block. */
static std::unique_ptr<fiber> new_fiber(void)
{
    std::unique_ptr<fiber> f(new fiber{});
    ucontext_t start;
    f->stack.reset(new char[STACK_BYTES]);
    getcontext(&start);
    start.uc_stack.ss_sp = f->stack.get();
    start.uc_stack.ss_size = STACK_BYTES;
    start.uc_link = nullptr;
    makecontext(
        &start,
        []() {
            yield();
            fiber_main();
        },
        0);
    state.current = f.get();
    if (_setjmp(state.scheduler) == 0)
        setcontext(&start);
    return f;
}

static void resume(fiber *f)
{
    state.current = f;
    if (_setjmp(state.scheduler) == 0)
        _longjmp(f->here, 1);
}

static emulated_index index_of(unsigned i, dim3 size)
{
    return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}

/* A thread that has ended no longer counts at the barrier, so the remaining ones may go on. */
static void release_those_left(void)
{
    if (state.alive > 0 && state.all.arrived == state.alive) {
        state.all.arrived = 0;
        state.all.round++;
    }
}

static void run_block_together(void)
{
    unsigned threads = threads_of_block();
    state.alive = threads;
    state.all = {};
    state.warps.assign((threads + warpSize - 1) / warpSize, barrier{});
    for (unsigned t = 0; t < threads; t++) {
        state.fibers[t]->index = index_of(t, blockDim);
        state.fibers[t]->ended = false;
    }
    for (bool is_down = blockIdx.x % 2 == 0; state.alive > 0; is_down = !is_down) {
        for (unsigned turn = 0; turn < threads; turn++) {
            fiber *f = state.fibers[is_down ? threads - 1 - turn : turn].get();
            if (f->ended)
                continue;
            resume(f);
            release_those_left();
        }
    }
}

static void prepare_together(const std::function<void()> &thread)
{
    unsigned threads = threads_of_block();
    while (state.fibers.size() < threads)
        state.fibers.push_back(new_fiber());
    if (state.exchanged.size() < (size_t)threads * MAX_EXCHANGED)
        state.exchanged.resize((size_t)threads * MAX_EXCHANGED);
    state.thread = &thread;
    state.is_running = true;
}

static void run_block_apart(const std::function<void()> &thread)
{
    for (unsigned t = 0, threads = threads_of_block(); t < threads; t++) {
        threadIdx = index_of(t, blockDim);
        thread();
    }
}

void emulated_run(dim3 grid, dim3 block, bool together, const std::function<void()> &thread)
{
    blockDim = block;
    gridDim = grid;
    if (together)
        prepare_together(thread);
    for (unsigned b = 0, blocks = grid.x * grid.y * grid.z; b < blocks; b++) {
        blockIdx = index_of(b, grid);
        if (together)
            run_block_together();
        else
            run_block_apart(thread);
    }
    state.is_running = false;
}
