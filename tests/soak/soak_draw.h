/* Draws a case from a seed. */
#pragma once

#include "soak_case.h"

typedef struct soak_means {
    bool has_cuda; /* the emulated plug-in is there */
    bool has_pjrt; /* the plug-in of the tests is there */
    bool has_mpi;
    bool has_zmq;
} soak_means;

void soak_case_draw(uint64_t seed, const soak_means *means, soak_case *drawn);
