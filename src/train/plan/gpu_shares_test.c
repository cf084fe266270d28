#include "train/plan/gpu_shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { MOST = 4 };

static lk_gpu_share shares[MOST];

/* `wants`: "**" means any two GPUs, "1*" number 1 and any other. `sees`: "023" means GPUs 0, 2 and 3 of the machine. */
static void process(int p, const char *wants, const char *sees)
{
    lk_gpu_share *share = &shares[p];
    memset(share, 0, sizeof *share);
    for (; wants[share->devices]; share->devices++)
        share->numbers[share->devices] = wants[share->devices] == '*' ? -1 : wants[share->devices] - '0';
    for (; sees[share->seen]; share->seen++)
        share->gpus[share->seen].bytes[3] = (unsigned char)sees[share->seen];
}

/* GPUs as the machine numbers them. */
static void takes(int p, const char *gpus)
{
    char taken[MOST + 1] = "";
    for (int i = 0; i < shares[p].devices; i++)
        taken[i] = (char)shares[p].gpus[shares[p].numbers[i]].bytes[3];
    assert_string_equal(taken, gpus);
}

typedef struct share_case {
    const char *wants, *sees, *takes; /* takes: not compared if NULL */
} share_case;

static void expect_shares(int n, const share_case *cases)
{
    for (int p = 0; p < n; p++)
        process(p, cases[p].wants, cases[p].sees);
    lk__gpu_shares_assign(shares, n);
    for (int p = 0; p < n; p++)
        if (cases[p].takes)
            takes(p, cases[p].takes);
}

static void one_after_the_other(void **state)
{
    (void)state;
    expect_shares(3, (const share_case[]){{"**", "0123", "01"}, {"*", "0123", "2"}, {"*", "0123", "3"}});
    assert_int_equal(shares[1].numbers[0], 2);
}

static void numbers_are_left_alone(void **state)
{
    (void)state;
    expect_shares(3, (const share_case[]){{"*", "0123", "1"}, {"0", "0123", "0"}, {"2*", "0123", "23"}});
}

/* As Slurm and CUDA_VISIBLE_DEVICES hide GPUs. */
static void processes_see_different_ones(void **state)
{
    (void)state;
    expect_shares(2, (const share_case[]){{"*", "1", "1"}, {"*", "0", "0"}});
    assert_int_equal(shares[0].numbers[0], 0);
    assert_int_equal(shares[1].numbers[0], 0);

    expect_shares(2, (const share_case[]){{"**", "32", "32"}, {"**", "10", "10"}});

    /* The first process leaves the second one the GPU that it sees. */
    expect_shares(3, (const share_case[]){{"*", "0123", "1"}, {"*", "0", "0"}, {"*", "02", "2"}});
}

static void more_than_there_are(void **state)
{
    (void)state;
    expect_shares(3, (const share_case[]){{"***", "01", "001"}, {"*", "01", "0"}, {"1", "01", "1"}});

    /* Numbers that do not exist, and processes without GPUs, are left alone: opening the devices reports them. */
    expect_shares(3, (const share_case[]){{"7", "01", NULL}, {"**", "01", "01"}, {"*", "", NULL}});
    assert_int_equal(shares[0].numbers[0], 7);
    assert_int_equal(shares[2].numbers[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(numbers_are_left_alone),
        cmocka_unit_test(processes_see_different_ones),
        cmocka_unit_test(more_than_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
