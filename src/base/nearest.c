/* lk_nearest_word: the most similar word, for "did you mean". */
#include "base/minmax.h"
#include "lockstep/options.h"

#include <limits.h>
#include <string.h>

/* The length of the longest word that is compared. */
enum { LONGEST = 47 };

/* Optimal string alignment distance: the Levenshtein distance, with a swap of neighbors as one step. Three rows of its
 * table are kept. */
static int nearest_word_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][LONGEST + 1];
    int *before = rows[0], *previous = rows[1], *current = rows[2];
    for (int j = 0; j <= b_length; j++)
        current[j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *recycled = before;
        before = previous, previous = current, current = recycled;
        current[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int changed = previous[j - 1] + (a[i - 1] != b[j - 1]);
            current[j] = (int)lk__min(lk__min(previous[j] + 1, current[j - 1] + 1), changed);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < current[j])
                current[j] = before[j - 2] + 1;
        }
    }
    return current[b_length];
}

const char *lk_nearest_word(const char *word, const void *rows, size_t count, size_t row_size)
{
    size_t length = strlen(word);
    if (length > LONGEST)
        return NULL;
    const char *nearest = NULL;
    int fewest = INT_MAX;
    for (size_t i = 0; i < count; i++) {
        const char *candidate = *(const char *const *)((const char *)rows + i * row_size);
        size_t candidate_length = strlen(candidate);
        if (candidate_length > LONGEST)
            continue;
        int steps = nearest_word_distance(word, (int)length, candidate, (int)candidate_length);
        /* A short word is only a few letters away from any other. */
        if (steps < fewest && steps <= lk__divide_up(lk__min((int64_t)length, (int64_t)candidate_length), 3)) {
            nearest = candidate;
            fewest = steps;
        }
    }
    return nearest;
}
