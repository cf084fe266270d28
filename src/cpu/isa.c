#include "cpu/isa.h"

#include "base/avx2.h"
#include "cpu/onednn/dnnl_compat.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* The most able first. */
static const lk_isa *const all[] = {
#if defined(__x86_64__)
    &lk__isa_amxbf16,
    &lk__isa_avx512bf16,
    &lk__isa_avx512,
    &lk__isa_avx2,
#endif
    NULL,
};

#if defined(__x86_64__)

/* Compilers' __builtin_cpu_supports need not know AMX: clang 14 does not. */
static bool isa_has_tiles(void)
{
    enum { OSXSAVE = 1 << 27, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, TILES = AMX_BF16 | AMX_TILE, SAVED = 3 << 17 };
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILES) != TILES)
        return false;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); /* the registers that the system saves for a thread */
    return (a & SAVED) == SAVED;
}

static bool isa_may_use_tiles(void)
{
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 }; /* headers of older versions of Linux lack the first */
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool lk__isa_runs(const lk_isa *isa)
{
    if (isa == &lk__isa_amxbf16)
        return lk__isa_runs(&lk__isa_avx512bf16) && isa_has_tiles() && isa_may_use_tiles();
    if (isa == &lk__isa_avx512bf16)
        return lk__isa_runs(&lk__isa_avx512) && __builtin_cpu_supports("avx512bf16");
    if (isa != &lk__isa_avx512)
        return lk__has_avx2();
    return lk__has_avx512();
}

bool lk__isa_pairs_are_fast(void)
{
    return __builtin_cpu_is("amd");
}

#else

const lk_isa lk__isa_avx2 = {.name = "avx2"}, lk__isa_avx512 = {.name = "avx512"},
             lk__isa_avx512bf16 = {.name = "avx512bf16"}, lk__isa_amxbf16 = {.name = "amxbf16"},
             lk__isa_emulated = {.name = "emulated"}, lk__isa_emulatedbf16 = {.name = "emulatedbf16"},
             lk__isa_emulatedamxbf16 = {.name = "emulatedamxbf16"};

bool lk__isa_runs(const lk_isa *isa)
{
    (void)isa;
    return false;
}

bool lk__isa_pairs_are_fast(void)
{
    return false;
}

#endif

/* Returns the value of LOCKSTEP_ISA; NULL if it is unset or empty. */
static const char *isa_wanted_name(void)
{
    const char *name = getenv("LOCKSTEP_ISA");
    return name && *name ? name : NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const lk_isa *chosen, *forced;
static lk_status limited = LK_OK;

static void choose_isa(void)
{
    const char *wanted = isa_wanted_name();
    if (wanted && strcmp(wanted, "avx2") == 0)
        limited = lk__dnnl_limit_to_avx2();
    for (const lk_isa *const *isa = all; *isa && !chosen; isa++)
        if ((!wanted || strcmp((*isa)->name, wanted) == 0) && lk__isa_runs(*isa) &&
            ((*isa)->width == 8 || lk__dnnl_has_avx512()))
            chosen = *isa;
}

const lk_isa *lk__isa(void)
{
    pthread_once(&once, choose_isa);
    return forced ? forced : chosen;
}

void lk__isa_force(const lk_isa *isa)
{
    forced = isa;
}

lk_status lk__isa_check(void)
{
    const char *wanted = isa_wanted_name();
    if (!wanted)
        return LK_OK;
    const lk_isa *const *isa = all;
    while (*isa && strcmp((*isa)->name, wanted) != 0)
        isa++;
    if (!*isa)
        LK_FAIL(LK_ERR_ARGUMENT, "LOCKSTEP_ISA=%s names no instruction set that kernels are compiled for: %s", wanted,
                *all ? "amxbf16, avx512bf16, avx512, avx2" : "there is none in this build");
    if (!lk__isa_runs(*isa))
        LK_FAIL(
            LK_ERR_UNSUPPORTED,
            "LOCKSTEP_ISA=%s: this processor does not have it, or the system does not permit it; unset the variable",
            wanted);
    lk__isa();
    if (limited != LK_OK)
        LK_FAIL(limited, "LOCKSTEP_ISA=%s: oneDNN had generated code before the variable was read", wanted);
    return LK_OK;
}

const lk_block_algorithm *lk__block_direct(void)
{
    const lk_isa *isa = lk__isa();
    return isa ? isa->f32->direct : NULL;
}

const lk_block_algorithm *lk__block_winograd(void)
{
    const lk_isa *isa = lk__isa();
    return isa ? isa->f32->winograd : NULL;
}

const lk_block_algorithm *lk__block_direct_bf16(void)
{
    return lk__isa()->bf16->direct;
}

const lk_block_algorithm *lk__block_tiles(void)
{
    return lk__isa()->tiles;
}

const lk_block_algorithm *lk__block_winograd_bf16(void)
{
    return lk__isa()->bf16->winograd;
}
