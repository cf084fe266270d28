/* Constants of the standard normal distribution, for gelu and its gradient. Its cumulative distribution function is
 * erfc(-x / sqrt(2)) / 2, and its density exp(-x^2 / 2) / sqrt(2 pi).
 *
 * For z >= 0, erfc(z) = exp(-z^2) P(z) / Q(z) with the rational function that Cody gives for [0.46875, 4] (Mathematics
 * of Computation 23, 1969, pp. 631-637). Coefficients begin with that of the highest power. */
#pragma once

#define LK_SQRT_HALF 0.70710678118654752440
#define LK_SQRT_HALF_PER_PI 0.39894228040143267794 /* 1 / sqrt(2 pi) */

enum { LK_ERFC_COEFFICIENTS = 9 };

static const double lk__erfc_p[LK_ERFC_COEFFICIENTS] = {
    2.15311535474403846343e-8, 5.64188496988670089180e-1, 8.88314979438837594118e0,
    6.61191906371416294775e1,  2.98635138197400131132e2,  8.81952221241769090411e2,
    1.71204761263407058314e3,  2.05107837782607146532e3,  1.23033935479799725272e3,
};
static const double lk__erfc_q[LK_ERFC_COEFFICIENTS] = {
    1.0,
    1.57449261107098347253e1,
    1.17693950891312499305e2,
    5.37181101862009857509e2,
    1.62138957456669018874e3,
    3.29079923573345962678e3,
    4.36261909014324715820e3,
    3.43936767414372163696e3,
    1.23033935480374942043e3,
};
