#include "vector_words.h"

#include "cpu/vector/vector.h"

static void widen(const uint16_t from[16], float to[16])
{
    vec_store(to, vec_widen(from));
}

static void round_one(const float from[16], uint16_t to[16])
{
    vec_round(to, vec_load(from));
}

static void round_two(const float from[2][16], uint16_t to[32])
{
    word_store(to, word_round((const vec[]){vec_load(from[0]), vec_load(from[1])}));
}

static void join_two(const uint16_t from[2][16], uint16_t to[32])
{
    word_storeu(to, word_join((const element *const[]){from[0], from[1]}));
}

static void multiply(const uint16_t a[32], const uint16_t b[32], float sum[16])
{
    vec_store(sum, word_fmadd(word_load(a), word_loadu(b), vec_load(sum)));
}

static void multiply_one(const uint16_t a[2], const uint16_t b[32], float sum[16])
{
    vec_store(sum, word_fmadd(word_broadcast(a), word_load(b), vec_load(sum)));
}

static void multiply_first(const uint16_t a[1], const uint16_t b[32], float sum[16])
{
    vec_store(sum, word_fmadd(word_broadcast_first(a), word_load(b), vec_load(sum)));
}

static void parts(const uint16_t from[32], float to[2][16])
{
    for (int i = 0; i < 2; i++)
        vec_store(to[i], word_part(word_load(from), i));
}

static void where(const uint16_t masks[2], const uint16_t from[32], uint16_t to[32])
{
    word_store(to, word_where((const vec_mask[]){mask_of_bits(masks[0]), mask_of_bits(masks[1])}, word_load(from)));
}

static void regroup(const uint16_t a[32], const uint16_t b[32], uint16_t firsts[32], uint16_t seconds[32])
{
    word_store(firsts, word_firsts(word_load(a), word_load(b)));
    word_store(seconds, word_seconds(word_load(a), word_load(b)));
}

const vector_words LK_ISA(vector_words) = {
    widen, round_one, round_two, join_two, multiply, multiply_one, multiply_first, parts, where, regroup,
};
