/* Random numbers that are a function of a seed: a case can be drawn again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct soak_random {
    uint64_t state;
} soak_random;

uint64_t soak_random_bits(soak_random *random);

/* An integer of low … high. */
int64_t soak_random_int(soak_random *random, int64_t low, int64_t high);

/* A number of [low, high). */
double soak_random_real(soak_random *random, double low, double high);

bool soak_random_chance(soak_random *random, double chance);

/* One of the texts before NULL. */
const char *soak_random_word(soak_random *random, const char *const *words);
