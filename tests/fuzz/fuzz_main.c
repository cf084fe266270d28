/* Runs a fuzz target without libFuzzer:
 *
 *   PROGRAM [--runs N] FOLDER…
 *
 * It runs the target on every file of the folders, then N times (default 4000) on one of them with random changes. The
 * same files give the same changes. If an input ends the program, it is written to PROGRAM.crash. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#pragma weak LLVMFuzzerCustomMutator

enum { MOST_SEEDS = 256, MOST_BYTES = 1 << 16, MOST_RSS_KB = 1 << 20 };

typedef struct seed {
    char name[NAME_MAX + 1];
    uint8_t *bytes;
    size_t size;
} seed;

static seed seeds[MOST_SEEDS];
static int n_seeds;
static uint8_t input[MOST_BYTES];
static size_t input_size;
static char crash_path[PATH_MAX];

/* --- seeds -------------------------------------------------------------------------------------------------------- */

static void read_seed(const char *folder, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    seed *s = &seeds[n_seeds];
    s->bytes = malloc(MOST_BYTES);
    FUZZ_CHECK(file && s->bytes && n_seeds < MOST_SEEDS - 1);
    s->size = fread(s->bytes, 1, MOST_BYTES, file);
    snprintf(s->name, sizeof s->name, "%s", name);
    fclose(file);
    n_seeds++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const seed *)a)->name, ((const seed *)b)->name);
}

static void read_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries) {
        fprintf(stderr, "%s: cannot be read: %s\n", folder, strerror(errno));
        exit(1);
    }
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            read_seed(folder, entry->d_name);
    closedir(entries);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

/* splitmix64 */
static uint64_t draw(uint64_t below)
{
    static uint64_t state;
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

/* Overwrites 1, 2, 4 or 8 bytes with a number near the limit of some integer type, in either byte order. */
static void put_number(void)
{
    static const uint64_t edges[] = {0,          1,           0x7F,        0x80,         0xFF,
                                     0x7FFF,     0x8000,      0xFFFF,      0x7FFFFFFF,   0x80000000u,
                                     0xFFFFFFFF, 0x100000000, UINT64_MAX,  INT64_MAX,    (uint64_t)INT64_MIN,
                                     0x10000,    0x1000001,   0x3FFFFFFFu, 0x4000000000u};
    uint64_t number = edges[draw(sizeof edges / sizeof *edges)];
    size_t bytes = (size_t)1 << draw(4);
    bool is_big = draw(2);
    if (input_size < bytes)
        return;
    size_t at = draw(input_size - bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        input[at + i] = (uint8_t)(number >> 8 * (is_big ? bytes - 1 - i : i));
}

/* The same in decimal, over the first digits after a random position. */
static void put_decimal(void)
{
    static const char *const edges[] = {"0", "-1", "1e999", "9223372036854775807", "4294967296", "0.5", "99999999999"};
    const char *text = edges[draw(sizeof edges / sizeof *edges)];
    size_t length = strlen(text), at = draw(input_size + 1);
    while (at < input_size && (input[at] < '0' || input[at] > '9'))
        at++;
    size_t end = at;
    while (end < input_size && input[end] >= '0' && input[end] <= '9')
        end++;
    if (end == at || input_size - (end - at) + length > MOST_BYTES)
        return;
    memmove(input + at + length, input + end, input_size - end);
    memcpy(input + at, text, length);
    input_size = input_size - (end - at) + length;
}

static void remove_piece(void)
{
    if (input_size == 0)
        return;
    size_t at = draw(input_size), length = 1 + draw(input_size - at);
    length = draw(2) && length > 8 ? 1 + draw(8) : length;
    memmove(input + at, input + at + length, input_size - at - length);
    input_size -= length;
}

/* Inserts a piece of this or another seed, once or many times. */
static void insert_piece(void)
{
    const seed *from = &seeds[draw((uint64_t)n_seeds)];
    if (from->size == 0)
        return;
    size_t begin = draw(from->size), length = 1 + draw(from->size - begin), at = draw(input_size + 1);
    for (uint64_t times = draw(8) ? 1 : 1 + draw(200); times > 0 && input_size + length <= MOST_BYTES; times--) {
        memmove(input + at + length, input + at, input_size - at);
        memcpy(input + at, from->bytes + begin, length);
        input_size += length;
    }
}

static void change(void)
{
    switch (draw(6)) {
    case 0:
        if (input_size > 0)
            input[draw(input_size)] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        if (input_size > 0)
            input[draw(input_size)] = (uint8_t)draw(256);
        break;
    case 2:
        put_number();
        break;
    case 3:
        put_decimal();
        break;
    case 4:
        remove_piece();
        break;
    default:
        insert_piece();
    }
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
    static uint8_t kept[MOST_BYTES];
    size_t kept_size = input_size;
    memcpy(kept, input, input_size);
    memmove(input, data, size);
    input_size = size;
    change();
    size_t changed = input_size < most ? input_size : most;
    memmove(data, input, changed);
    memcpy(input, kept, kept_size);
    input_size = kept_size;
    return changed;
}

static void change_in_its_format(void)
{
    static uint8_t room[MOST_BYTES];
    memcpy(room, input, input_size);
    input_size = LLVMFuzzerCustomMutator(room, input_size, sizeof room, (unsigned)draw(UINT32_MAX));
    memcpy(input, room, input_size);
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void keep_input(int number)
{
    int file = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0 && write(file, input, input_size) == (ssize_t)input_size) {
        static const char text[] = "the input is in ";
        (void)!write(2, text, sizeof text - 1);
        (void)!write(2, crash_path, strlen(crash_path));
        (void)!write(2, "\n", 1);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void run_on(const seed *s, int changes)
{
    memcpy(input, s->bytes, s->size);
    input_size = s->size;
    while (changes-- > 0) {
        if (LLVMFuzzerCustomMutator && draw(4))
            change_in_its_format();
        else
            change();
    }
    /* The memory has exactly the input's size, so that a sanitizer sees reads past its end. */
    uint8_t *copy = malloc(input_size ? input_size : 1);
    FUZZ_CHECK(copy);
    memcpy(copy, input, input_size);
    LLVMFuzzerTestOneInput(copy, input_size);
    free(copy);
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    long runs = 4000;
    snprintf(crash_path, sizeof crash_path, "%.4000s.crash", argv[0]);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], keep_input);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = strtol(argv[++i], NULL, 10);
        else
            read_folder(argv[i]);
    }
    if (n_seeds == 0) {
        fputs("no files to begin with: name their folder\n", stderr);
        return 2;
    }
    qsort(seeds, (size_t)n_seeds, sizeof *seeds, by_name);
    for (int i = 0; i < n_seeds; i++)
        run_on(&seeds[i], 0);
    for (long i = 0; i < runs; i++)
        run_on(&seeds[draw((uint64_t)n_seeds)], 1 + (int)draw(6));
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%d files, %ld changed ones, at most %ld MB\n", n_seeds, runs, used.ru_maxrss >> 10);
    FUZZ_CHECK(used.ru_maxrss < MOST_RSS_KB);
    for (int i = 0; i < n_seeds; i++)
        free(seeds[i].bytes);
    return 0;
}
