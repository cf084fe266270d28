/* Winograd's transforms of one row or column, for every F(m, r) with m + r - 1 = 6: m outputs come from six inputs and
 * a kernel of r taps. The points are 0, 1, -1, 2, -2 and infinity.
 *
 * Names follow Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016: y = A^T ((G g) * (B^T d)).
 * The counts `outputs`, `taps` and `point` are constants at each call, so the compiler unrolls every loop. */
#pragma once

#include "cpu/vector/vector.h"

enum { LK_SIDE = 6 };

/* Computes one row of B^T d. */
LK_BODY vec input_point(const vec d[LK_SIDE], const int point)
{
    const vec two = vec_set(2), four = vec_set(4), five = vec_set(5);
    switch (point) {
    case 0:
        return vec_fmadd(four, d[0], vec_fnmadd(five, d[2], d[4]));
    case 1:
        return vec_add(vec_fnmadd(four, d[2], d[4]), vec_fnmadd(four, d[1], d[3]));
    case 2:
        return vec_sub(vec_fnmadd(four, d[2], d[4]), vec_fnmadd(four, d[1], d[3]));
    case 3:
        return vec_fmadd(two, vec_sub(d[3], d[1]), vec_sub(d[4], d[2]));
    case 4:
        return vec_fnmadd(two, vec_sub(d[3], d[1]), vec_sub(d[4], d[2]));
    default:
        return vec_fmadd(four, d[1], vec_fnmadd(five, d[3], d[5]));
    }
}

/* Computes t = B^T d. */
LK_BODY void transform_input(const vec d[LK_SIDE], vec t[LK_SIDE])
{
    for (int i = 0; i < LK_SIDE; i++)
        t[i] = input_point(d, i);
}

/* Computes d = B t, the transpose of transform_input. */
LK_BODY void transform_input_gradient(const vec t[LK_SIDE], vec d[LK_SIDE])
{
    const vec two = vec_set(2), four = vec_set(4), five = vec_set(5);
    vec s1 = vec_add(t[1], t[2]), d1 = vec_sub(t[1], t[2]);
    vec s2 = vec_add(t[3], t[4]), d2 = vec_mul(two, vec_sub(t[3], t[4]));
    d[0] = vec_mul(four, t[0]);
    d[1] = vec_fmsub(four, vec_sub(t[5], d1), d2);
    d[2] = vec_fmsub(vec_set(-4), vec_add(t[0], s1), vec_add(t[0], s2));
    d[3] = vec_fnmadd(five, t[5], vec_add(d1, d2));
    d[4] = vec_add(t[0], vec_add(s1, s2));
    d[5] = t[5];
}

/* Computes y = A^T m. */
LK_BODY void transform_output(const vec m[LK_SIDE], vec *y, const int outputs)
{
    vec s1 = vec_add(m[1], m[2]), d1 = vec_sub(m[1], m[2]), s2 = vec_add(m[3], m[4]), d2 = vec_sub(m[3], m[4]);
    y[0] = vec_add(m[0], vec_add(s1, s2));
    for (int i = 1; i < outputs; i++)
        y[i] = i % 2 ? vec_fmadd(vec_set((float)(1 << i)), d2, d1) : vec_fmadd(vec_set((float)(1 << i)), s2, s1);
    y[outputs - 1] = vec_add(y[outputs - 1], m[5]);
}

/* Computes one row of A y, the transpose of transform_output. */
LK_BODY vec gradient_point(const vec *y, const int outputs, const int point)
{
    const vec at = vec_set(point < 3 ? 1 : 2), squared = vec_set(point < 3 ? 1 : 4);
    if (point == 0)
        return y[0];
    if (point == LK_SIDE - 1)
        return y[outputs - 1];
    vec even = outputs > 2 ? vec_fmadd(squared, y[2], y[0]) : y[0];
    vec odd = outputs > 2 ? vec_fmadd(squared, y[3], y[1]) : y[1];
    return point % 2 ? vec_fmadd(at, odd, even) : vec_fnmadd(at, odd, even);
}

/* Computes m = A y. */
LK_BODY void transform_gradient(const vec *y, const int outputs, vec m[LK_SIDE])
{
    for (int i = 0; i < LK_SIDE; i++)
        m[i] = gradient_point(y, outputs, i);
}

/* Computes t = G g. */
LK_BODY void transform_kernel(const vec *g, const int taps, vec t[LK_SIDE])
{
    const vec quarter = vec_set(1.0F / 4), sixth = vec_set(-1.0F / 6), last = vec_set(1.0F / 24);
    const vec four = vec_set(4);
    vec even = vec_add(g[0], g[2]), odd = g[1], far_even = vec_fmadd(four, g[2], g[0]), far_odd = g[1];
    if (taps > 3) {
        even = vec_add(even, g[4]);
        odd = vec_add(odd, g[3]);
        far_even = vec_fmadd(vec_set(16), g[4], far_even);
        far_odd = vec_fmadd(four, g[3], far_odd);
    }
    far_odd = vec_add(far_odd, far_odd);
    t[0] = vec_mul(quarter, g[0]);
    t[1] = vec_mul(sixth, vec_add(even, odd));
    t[2] = vec_mul(sixth, vec_sub(even, odd));
    t[3] = vec_mul(last, vec_add(far_even, far_odd));
    t[4] = vec_mul(last, vec_sub(far_even, far_odd));
    t[5] = g[taps - 1];
}

/* Computes g = G^T u, the transpose of transform_kernel. */
LK_BODY void transform_kernel_gradient(const vec u[LK_SIDE], vec *g, const int taps)
{
    const vec quarter = vec_set(1.0F / 4), sixth = vec_set(-1.0F / 6), last = vec_set(1.0F / 24);
    vec s1 = vec_mul(sixth, vec_add(u[1], u[2])), d1 = vec_mul(sixth, vec_sub(u[1], u[2]));
    vec s2 = vec_mul(last, vec_add(u[3], u[4])), d2 = vec_mul(last, vec_sub(u[3], u[4]));
    g[0] = vec_add(vec_fmadd(quarter, u[0], s1), s2);
    for (int i = 1; i < taps; i++)
        g[i] = i % 2 ? vec_fmadd(vec_set((float)(1 << i)), d2, d1) : vec_fmadd(vec_set((float)(1 << i)), s2, s1);
    g[taps - 1] = vec_add(g[taps - 1], u[5]);
}
