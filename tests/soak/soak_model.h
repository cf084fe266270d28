/* Random model files (docs/model-files.md). */
#pragma once

#include "soak_case.h"
#include "soak_random.h"

/* Writes drawn->model for the case's images. */
void soak_model_draw(soak_random *random, soak_case *drawn);

/* Sets the size of the case's images: as the data has them, or --resize. */
void soak_model_image(const soak_case *drawn, int *height, int *width);
