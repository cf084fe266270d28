/* Processes exchange messages through shared memory. Each test forks its ranks, which report by their exit status. */
#include "dist/process/shared_messages.h"

#include "base/status_testing.h"
#include "lockstep/dist.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 5, LARGE = 3 << 20 };

typedef struct rank {
    const lk_messages *table;
    int rank, ranks;
} rank;

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

#define CHECK(expression) check(expression, #expression)

static lk_message begin(const rank *r, bool is_sent, lk_channel channel, int other, void *data, size_t bytes)
{
    lk_message message;
    char error[LK_MESSAGES_ERROR];
    CHECK(r->table->begin(is_sent, channel, other, data, bytes, &message, error) == LK_MESSAGES_OK);
    return message;
}

static void wait_for(const rank *r, lk_message *messages, int n)
{
    char error[LK_MESSAGES_ERROR];
    for (bool all = false; !all;)
        CHECK(r->table->done(messages, n, &all, error) == LK_MESSAGES_OK);
}

/* Runs `ranks` processes; each must end well. denied: the system does not let one read another's memory. Returns the
 * bytes of shared memory that were used. */
static int64_t run_ranks(int ranks, bool denied, void (*run)(const rank *r))
{
    int descriptor, status;
    char text[16];
    pid_t processes[MOST_RANKS];
    assert_ok(lk_processes_share(ranks, &descriptor));
    for (int i = 0; i < ranks; i++) {
        processes[i] = fork();
        assert_true(processes[i] >= 0);
        if (processes[i] > 0)
            continue;
        snprintf(text, sizeof text, "%d", descriptor);
        setenv(LK_SHARED_MEMORY_VARIABLE, text, 1);
        snprintf(text, sizeof text, "%d", i);
        setenv(LK_RANK_VARIABLE, text, 1);
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
        if (denied)
            CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        rank r = {.table = lk__shared_messages()};
        char error[LK_MESSAGES_ERROR];
        CHECK(r.table && r.table->open(&r.rank, &r.ranks, error) == LK_MESSAGES_OK);
        CHECK(r.rank == i && r.ranks == ranks);
        run(&r);
        r.table->close();
        _exit(0);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(waitpid(processes[i], &status, 0), processes[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    struct stat used;
    assert_int_equal(fstat(descriptor, &used), 0);
    close(descriptor);
    return used.st_blocks * 512;
}

static unsigned char byte_of(int from, int to, size_t i)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)(16 * from + to));
}

/* Every rank sends every other one messages of many sizes, all at once. */
static void exchange_sizes(const rank *r)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 5000, 32 << 10, (256 << 10) - 1, 256 << 10, 300000, LARGE};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    lk_message messages[2 * MOST_RANKS * SIZES];
    unsigned char *data[2][MOST_RANKS][SIZES] = {{{NULL}}};
    int n = 0;
    for (int other = 0; other < r->ranks; other++)
        for (int s = 0; s < SIZES && other != r->rank; s++) {
            lk_channel channel = sizes[s] < 4096 ? LK_CHANNEL_CONTROL : LK_CHANNEL_DATA;
            for (int is_sent = 0; is_sent < 2; is_sent++)
                CHECK((data[is_sent][other][s] = calloc(sizes[s] + 1, 1)) != NULL);
            for (size_t i = 0; i < sizes[s]; i++)
                data[1][other][s][i] = byte_of(r->rank, other, i);
            messages[n++] = begin(r, true, channel, other, data[1][other][s], sizes[s]);
            messages[n++] = begin(r, false, channel, other, data[0][other][s], sizes[s]);
        }
    wait_for(r, messages, n);
    for (int other = 0; other < r->ranks; other++)
        for (int s = 0; s < SIZES && other != r->rank; s++) {
            for (size_t i = 0; i < sizes[s]; i++)
                CHECK(data[0][other][s][i] == byte_of(other, r->rank, i));
            free(data[0][other][s]);
            free(data[1][other][s]);
        }
}

/* Every rank sends the same messages to all others, several of them before anybody reads, and one to its neighbor. */
static void tell_all(const rank *r)
{
    enum { TOLD = 3, SHORT = 5000 };
    static unsigned char told[MOST_RANKS][TOLD][(256 << 10) - 1], alone[2][SHORT];
    lk_message messages[MOST_RANKS * TOLD + 2];
    size_t most = r->table->most_to_all;
    int n = 0;
    CHECK(most == sizeof told[0][0]);
    for (int i = 0; i < TOLD; i++)
        for (size_t at = 0; at < most; at++)
            told[r->rank][i][at] = byte_of(r->rank, i, at);
    for (int i = 0; i < TOLD; i++)
        for (int from = 0; from < r->ranks; from++)
            messages[n++] =
                begin(r, from == r->rank, LK_CHANNEL_TO_ALL, from, told[from][i], i == 1 ? most : SHORT + (size_t)i);
    memset(alone[0], r->rank, SHORT);
    messages[n++] = begin(r, true, LK_CHANNEL_DATA, (r->rank + 1) % r->ranks, alone[0], SHORT);
    messages[n++] = begin(r, false, LK_CHANNEL_DATA, (r->rank + r->ranks - 1) % r->ranks, alone[1], SHORT);
    wait_for(r, messages, n);
    for (int from = 0; from < r->ranks; from++)
        for (int i = 0; i < TOLD; i++)
            for (size_t at = 0; at < (i == 1 ? most : SHORT + (size_t)i); at++)
                CHECK(told[from][i][at] == byte_of(from, i, at));
    CHECK(alone[1][0] == (r->rank + r->ranks - 1) % r->ranks && memcmp(alone[1], alone[1] + 1, SHORT - 1) == 0);
}

/* A rank that waits for one message must not hold up another that it has begun to send. */
static void wait_crosswise(const rank *r)
{
    static char out[LARGE], in[LARGE];
    for (int round = 0; round < 20; round++) {
        lk_message sent = begin(r, true, LK_CHANNEL_DATA, 1 - r->rank, out, sizeof out);
        lk_message received = begin(r, false, LK_CHANNEL_DATA, 1 - r->rank, in, sizeof in);
        wait_for(r, r->rank ? &sent : &received, 1);
        wait_for(r, r->rank ? &received : &sent, 1);
    }
}

/* The ranks take turns, so every message finds an empty ring. */
static void take_turns(const rank *r)
{
    char data[4096] = {0};
    for (int turn = 0; turn < 200; turn++) {
        lk_message message = begin(r, turn % 2 == r->rank, LK_CHANNEL_DATA, 1 - r->rank, data, sizeof data);
        wait_for(r, &message, 1);
    }
}

/* Rank 0 hears from the others in any order, and in the order of each. */
static void hear_anybody(const rank *r)
{
    enum { TIMES = 50 };
    int note[2], next[MOST_RANKS] = {0};
    for (int i = 0; i < TIMES && r->rank > 0; i++) {
        note[0] = r->rank;
        note[1] = i;
        lk_message sent = begin(r, true, LK_CHANNEL_NOTES, 0, note, sizeof note);
        wait_for(r, &sent, 1);
    }
    for (int i = 0; i < TIMES * (r->ranks - 1) && r->rank == 0; i++) {
        lk_message received = begin(r, false, LK_CHANNEL_NOTES, LK_MESSAGES_ANYBODY, note, sizeof note);
        wait_for(r, &received, 1);
        CHECK(note[0] > 0 && note[0] < r->ranks && note[1] == next[note[0]]++);
    }
    lk_message last = begin(r, false, LK_CHANNEL_NOTES, LK_MESSAGES_ANYBODY, note, sizeof note);
    r->table->cancel(&last);
}

static void expect_another_size(const rank *r)
{
    char data[8], error[LK_MESSAGES_ERROR] = "";
    bool all = false;
    lk_message message = begin(r, r->rank == 0, LK_CHANNEL_CONTROL, 1 - r->rank, data, r->rank == 0 ? 8 : 4);
    lk_messages_status status = LK_MESSAGES_OK;
    while (status == LK_MESSAGES_OK && !all)
        status = r->table->done(&message, 1, &all, error);
    CHECK(r->rank == 0 ? all : strstr(error, "not of the 4 bytes that are expected") != NULL);
}

static void messages_arrive_whole(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        run_ranks(ranks, false, exchange_sizes);
    run_ranks(2, false, wait_crosswise);
}

static void all_are_told(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
        run_ranks(ranks, false, tell_all);
}

static void short_messages_use_few_pages(void **state)
{
    (void)state;
    assert_in_range(run_ranks(2, false, take_turns), 1, 64 << 10);
}

static void so_they_do_where_memory_cannot_be_read(void **state)
{
    (void)state;
    run_ranks(3, true, exchange_sizes);
    run_ranks(2, true, wait_crosswise);
}

static void anybody_is_heard_in_order(void **state)
{
    (void)state;
    run_ranks(MOST_RANKS, false, hear_anybody);
}

static void another_size_is_an_error(void **state)
{
    (void)state;
    run_ranks(2, false, expect_another_size);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    int descriptor, n;
    char error[LK_MESSAGES_ERROR] = "";
    expect_failure(lk_processes_share(0, &descriptor), LK_ERR_ARGUMENT, "0 processes; from 1 to");
    expect_failure(lk_processes_share(1000000, &descriptor), LK_ERR_ARGUMENT, "1000000 processes");
    assert_null(lk__shared_messages());
    setenv(LK_SHARED_MEMORY_VARIABLE, "999", 1);
    assert_int_equal(lk__shared_messages()->open(&n, &n, error), LK_MESSAGES_FAILED);
    assert_non_null(strstr(error, "LOCKSTEP_SHARED_MEMORY=999"));
    unsetenv(LK_SHARED_MEMORY_VARIABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole),        cmocka_unit_test(all_are_told),
        cmocka_unit_test(short_messages_use_few_pages), cmocka_unit_test(so_they_do_where_memory_cannot_be_read),
        cmocka_unit_test(anybody_is_heard_in_order),    cmocka_unit_test(another_size_is_an_error),
        cmocka_unit_test(wrong_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
