#include "soak_random.h"

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t soak_random_bits(soak_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t soak_random_int(soak_random *random, int64_t low, int64_t high)
{
    return low + (int64_t)(soak_random_bits(random) % ((uint64_t)(high - low) + 1));
}

double soak_random_real(soak_random *random, double low, double high)
{
    return low + (high - low) * (double)(soak_random_bits(random) >> 11) * 0x1p-53;
}

bool soak_random_chance(soak_random *random, double chance)
{
    return soak_random_real(random, 0, 1) < chance;
}

const char *soak_random_word(soak_random *random, const char *const *words)
{
    int count = 0;
    while (words[count])
        count++;
    return words[soak_random_int(random, 0, count - 1)];
}
