#include "ops/geometry.h"

static lk_geometry geometry_of(lk_shape x, lk_shape y, const int64_t kernel[2], const lk_conv2d_opts *opts)
{
    lk_geometry g = {.images = x.dim[0], .channels = x.dim[1], .filters = y.dim[1], .groups = opts->groups};
    for (int i = 0; i < 2; i++) {
        g.in[i] = x.dim[2 + i];
        g.out[i] = y.dim[2 + i];
        g.kernel[i] = kernel[i];
        g.stride[i] = opts->stride[i];
        g.padding[i] = opts->padding[i];
        g.dilation[i] = opts->dilation[i];
    }
    return g;
}

lk_geometry lk__geometry_of_conv(lk_shape x, lk_shape w, lk_shape y, const lk_conv2d_opts *opts)
{
    return geometry_of(x, y, &w.dim[2], opts);
}

lk_geometry lk__geometry_of_pool(lk_shape x, lk_shape y, const lk_pool2d_opts *opts)
{
    lk_conv2d_opts conv = {{opts->stride[0], opts->stride[1]}, {opts->padding[0], opts->padding[1]}, {1, 1}, x.dim[1]};
    lk_geometry g = geometry_of(x, y, opts->kernel, &conv);
    g.count_padding = opts->count_include_pad;
    return g;
}
