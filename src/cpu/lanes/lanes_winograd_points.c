/* Winograd's transforms with images in the vector lanes: x, dy and weights to points; points to y, dx and dw. y is
 * pooled, and dy spread over the windows, in the same pass. */
#include "cpu/lanes/lanes_winograd_points.h"

#include "cpu/lanes/lanes_tiles.h"
#include "cpu/vector/rectify.h"

#include <math.h>
#include <string.h>

enum { SIDE = LK_SIDE, POINTS = LK_POINTS, WIDTH = LK_WIDTH };

/* --- positions of patches ----------------------------------------------------------------------------------------- */

/* The position of a patch: its block of images, its first pixel in the result, and its first pixel in x, possibly in
 * the padding. */
typedef struct position {
    int64_t images;
    int64_t row, column;
    int64_t x_row, x_column;
} position;

static position position_of_patch(const lk_patches *patches, int64_t index)
{
    int64_t of_images = patches->rows * patches->columns, at = index % of_images;
    const int64_t *padding = patches->block->conv.padding;
    position p = {.images = index / of_images};
    p.row = at / patches->columns * patches->side;
    p.column = at % patches->columns * patches->side;
    p.x_row = p.row - padding[0];
    p.x_column = p.column - padding[1];
    return p;
}

static int64_t lanes_points_block_floats(const int64_t size[2], int64_t channels)
{
    return size[0] * size[1] * channels * WIDTH;
}

/* The part of a strip that lies inside x: rows from `top` to `bottom` of 6, columns from `left` to `right`. */
typedef struct extent {
    int64_t top, bottom, left, right;
} extent;

static int64_t lanes_points_clamp_to(int64_t i, int64_t end)
{
    return i < 0 ? 0 : i > end ? end : i;
}

/* The pixels of x or dx that a strip covers. */
typedef struct strip {
    position first;
    int64_t patches, columns; /* columns of pixels; there are 6 rows */
    int64_t offset;           /* offset of its first pixel in x, which may lie outside */
    int64_t row_step, column_step;
    extent inside;
} strip;

/* Returns the strip that begins with patch `index`. */
static strip lanes_points_strip_of(const lk_patches *patches, int64_t index)
{
    const lk_lanes_conv *conv = &patches->block->conv;
    position p = position_of_patch(patches, index);
    int64_t left = patches->columns - p.column / patches->side, step = conv->in[2] * WIDTH;
    strip s = {.first = p, .patches = left < patches->strip ? left : patches->strip, .column_step = step};
    s.columns = (s.patches - 1) * patches->side + SIDE;
    s.row_step = conv->in[1] * step;
    s.offset = p.images * lanes_points_block_floats(conv->in, conv->in[2]) + p.x_row * s.row_step + p.x_column * step;
    s.inside = (extent){lanes_points_clamp_to(-p.x_row, SIDE), lanes_points_clamp_to(conv->in[0] - p.x_row, SIDE),
                        lanes_points_clamp_to(-p.x_column, s.columns),
                        lanes_points_clamp_to(conv->in[1] - p.x_column, s.columns)};
    return s;
}

/* --- x ------------------------------------------------------------------------------------------------------------ */

/* Half transformed pixels of a strip and a channel: [row of points][column of pixels]. */
typedef struct half_done {
    _Alignas(64) float at[SIDE][LK_STRIP_COLUMNS * WIDTH];
} half_done;

LK_BODY void load_column(const strip *s, const float *at, vec d[SIDE])
{
    bool whole = s->inside.top == 0 && s->inside.bottom == SIDE;
    for (int r = 0; r < SIDE; r++) {
        if (whole || (r >= s->inside.top && r < s->inside.bottom))
            d[r] = vec_load(at + r * s->row_step);
        else
            d[r] = vec_zero();
    }
}

/* Transforms columns to the points of all rows, or, if row >= 0, of that row only. */
LK_BODY void transform_columns(const strip *s, const float *at, const int row, half_done *h)
{
    for (int64_t c = 0; c < s->columns; c++) {
        vec d[SIDE], t[SIDE];
        for (int r = 0; r < SIDE; r++)
            d[r] = vec_zero();
        if (c >= s->inside.left && c < s->inside.right)
            load_column(s, at + c * s->column_step, d);
        if (row < 0)
            transform_input(d, t);
        else
            t[0] = input_point(d, row);
        for (int r = 0; r < (row < 0 ? SIDE : 1); r++)
            vec_store(h->at[r] + c * WIDTH, t[r]);
    }
}

LK_BODY void transform_row(const float *from, float *to, int64_t stride)
{
    vec d[SIDE], t[SIDE];
    for (int c = 0; c < SIDE; c++)
        d[c] = vec_load(from + c * WIDTH);
    transform_input(d, t);
    for (int c = 0; c < SIDE; c++)
        vec_store(to + c * stride, t[c]);
}

LK_BODY void transform_x(const lk_patches *patches, const float *x, lk_patch_range chunk, const int row, float *points)
{
    half_done h;
    int64_t channels = patches->block->conv.in[2], stride = lk__patch_stride(chunk.count * channels * WIDTH);
    for (int64_t i = 0; i < chunk.count;) {
        strip s = lanes_points_strip_of(patches, chunk.first + i);
        for (int64_t c = 0; c < channels; c++) {
            float *to = points + (i * channels + c) * WIDTH;
            transform_columns(&s, x + s.offset + c * WIDTH, row, &h);
            for (int64_t k = 0; k < s.patches; k++, to += channels * WIDTH)
                for (int r = 0; r < (row < 0 ? SIDE : 1); r++)
                    transform_row(h.at[r] + k * patches->side * WIDTH, to + r * SIDE * stride, stride);
        }
        i += s.patches;
    }
}

void lk__points_of_x(const lk_patches *patches, const float *x, lk_patch_range chunk, float *points)
{
    transform_x(patches, x, chunk, -1, points);
}

void lk__row_of_x(const lk_patches *patches, const float *x, lk_patch_range chunk, int row, float *points)
{
    switch (row) {
    case 0:
        transform_x(patches, x, chunk, 0, points);
        break;
    case 1:
        transform_x(patches, x, chunk, 1, points);
        break;
    case 2:
        transform_x(patches, x, chunk, 2, points);
        break;
    case 3:
        transform_x(patches, x, chunk, 3, points);
        break;
    case 4:
        transform_x(patches, x, chunk, 4, points);
        break;
    default:
        transform_x(patches, x, chunk, 5, points);
        break;
    }
}

/* --- dx ----------------------------------------------------------------------------------------------------------- */

/* Adds one row of a patch's points, transformed back, to its columns. */
LK_BODY void add_point_row(const float *from, int64_t stride, float *to)
{
    vec t[SIDE], d[SIDE];
    for (int c = 0; c < SIDE; c++)
        t[c] = vec_load(from + c * stride);
    transform_input_gradient(t, d);
    for (int c = 0; c < SIDE; c++)
        vec_store(to + c * WIDTH, vec_add(vec_load(to + c * WIDTH), d[c]));
}

LK_BODY void add_columns(const strip *s, const half_done *h, float *to)
{
    for (int64_t c = s->inside.left; c < s->inside.right; c++) {
        vec t[SIDE], d[SIDE];
        for (int r = 0; r < SIDE; r++)
            t[r] = vec_load(h->at[r] + c * WIDTH);
        transform_input_gradient(t, d);
        for (int r = 0; r < SIDE; r++) {
            float *at = to + r * s->row_step + c * s->column_step;
            if (r >= s->inside.top && r < s->inside.bottom)
                vec_store(at, vec_add(vec_load(at), d[r]));
        }
    }
}

void lk__dx_of_points(const lk_patches *patches, const float *points, lk_patch_range chunk, float *dx)
{
    half_done h;
    const int64_t *in = patches->block->conv.in;
    int64_t images = lanes_points_block_floats(in, in[2]), stride = lk__patch_stride(chunk.count * in[2] * WIDTH);
    for (int64_t i = 0; i < chunk.count;) {
        strip s = lanes_points_strip_of(patches, chunk.first + i);
        if (s.first.row == 0 && s.first.column == 0)
            memset(dx + s.first.images * images, 0, (size_t)images * sizeof *dx);
        for (int64_t c = 0; c < in[2]; c++) {
            const float *from = points + (i * in[2] + c) * WIDTH;
            memset(&h, 0, sizeof h);
            for (int64_t k = 0; k < s.patches; k++, from += in[2] * WIDTH)
                for (int r = 0; r < SIDE; r++)
                    add_point_row(from + r * SIDE * stride, stride, h.at[r] + k * patches->side * WIDTH);
            add_columns(&s, &h, dx + s.offset + c * WIDTH);
        }
        i += s.patches;
    }
}

/* --- y ------------------------------------------------------------------------------------------------------------ */

/* Destination of a patch of y: its block's y, its block's saved bytes, and the lanes that hold an image. */
typedef struct result {
    const lk_lanes_block *block;
    position position;
    float *y;
    vec_bits *signs;
    uint8_t *winners;
    vec_mask images;
} result;

/* Applies relu and saves its signs, if the block has relu. */
LK_BODY vec activated(const result *r, vec x, int64_t row, int64_t column, int64_t channel)
{
    const int64_t *out = r->block->conv.out;
    if (!r->block->relu)
        return x;
    if (r->signs)
        r->signs[(row * out[1] + column) * out[2] + channel] = mask_bits(mask_greater(x, vec_zero()));
    return lk__rectified(x);
}

LK_BODY void store_y(const result *r, vec y, int64_t row, int64_t column, int64_t channel)
{
    const lk_geometry *pool = &r->block->pool;
    vec_store(r->y + ((row * pool->out[1] + column) * pool->channels + channel) * WIDTH, vec_where(r->images, y));
}

LK_BODY void store_pixels(const result *r, const lk_patches *patches, int64_t channel, const vec *y, const int side)
{
    for (int i = 0; i < side * side; i++) {
        int64_t row = r->position.row + i / side, column = r->position.column + i % side;
        if (row < patches->used[0] && column < patches->used[1])
            store_y(r, activated(r, y[i], row, column, channel), row, column, channel);
    }
}

/* Stores the average of a window's four pixels, added in order. */
LK_BODY void store_average(const result *r, const vec window[4], int64_t row, int64_t column, int64_t channel)
{
    vec sum = vec_set(-0.0f); /* -0 + x is x, also for x = -0 */
    for (int i = 0; i < 4; i++)
        sum = vec_add(sum, activated(r, window[i], 2 * row + i / 2, 2 * column + i % 2, channel));
    store_y(r, vec_mul(sum, vec_set(0.25F)), row, column, channel);
}

/* Stores the first maximum of a window; NaN counts as greater than any number. */
LK_BODY void store_maximum(const result *r, const vec window[4], int64_t row, int64_t column, int64_t channel)
{
    const lk_geometry *pool = &r->block->pool;
    vec most = vec_set(-INFINITY);
    vec_int winner = int_set(0);
    for (int i = 0; i < 4; i++) {
        vec x = r->block->relu ? lk__rectified(window[i]) : window[i];
        vec_mask greater = mask_and(mask_unless_not_greater(x, most), mask_ordered(most));
        most = vec_select(greater, x, most);
        winner = int_select(greater, int_set(i), winner);
    }
    if (r->block->relu)
        winner = int_select(mask_greater(most, vec_zero()), winner, int_set(255));
    if (r->winners)
        int_store_bytes(winner, r->winners + ((row * pool->out[1] + column) * pool->channels + channel) * WIDTH);
    store_y(r, most, row, column, channel);
}

LK_BODY void store_windows(const result *r, int64_t channel, const vec *y, const int side)
{
    for (int i = 0; i < side / 2 * (side / 2); i++) {
        int top = i / (side / 2) * 2, left = i % (side / 2) * 2;
        int64_t row = (r->position.row + top) / 2, column = (r->position.column + left) / 2;
        const vec *at = y + top * side + left;
        const vec window[4] = {at[0], at[1], at[side], at[side + 1]};
        if (row >= r->block->pool.out[0] || column >= r->block->pool.out[1])
            continue;
        if (r->block->max)
            store_maximum(r, window, row, column, channel);
        else
            store_average(r, window, row, column, channel);
    }
}

LK_BODY void pixels_of_points(const float *points, int64_t stride, vec bias, vec *y, const int side)
{
    vec half[4 * SIDE], m[SIDE], t[4];
    for (int c = 0; c < SIDE; c++) {
        for (int r = 0; r < SIDE; r++)
            m[r] = vec_load(points + (r * SIDE + c) * stride);
        transform_output(m, t, side);
        for (int r = 0; r < side; r++)
            half[r * SIDE + c] = t[r];
    }
    for (int r = 0; r < side; r++) {
        transform_output(half + r * SIDE, t, side);
        for (int c = 0; c < side; c++)
            y[r * side + c] = vec_add(t[c], bias);
    }
}

static result lanes_points_result_of(const lk_patches *patches, int64_t index, float *y, uint8_t *saved)
{
    const lk_lanes_block *block = patches->block;
    position p = position_of_patch(patches, index);
    uint8_t *from = saved ? saved + (size_t)p.images * lk__lanes_block_saved_bytes(block) : NULL;
    return (result){.block = block,
                    .position = p,
                    .y = y + p.images * lanes_points_block_floats(block->pool.out, block->pool.channels),
                    .signs = (vec_bits *)(void *)from,
                    .winners = from,
                    .images = mask_first(block->conv.images - p.images * WIDTH)};
}

LK_BODY void channel_of_y(const result *r, const lk_patches *patches, int64_t channel, const float *points,
                          int64_t stride, vec bias, const int side)
{
    vec y[16];
    pixels_of_points(points, stride, bias, y, side);
    if (r->block->pool.kernel[0] == 2)
        store_windows(r, channel, y, side);
    else
        store_pixels(r, patches, channel, y, side);
}

LK_BODY void transform_y(const lk_patches *patches, const float *points, lk_patch_range chunk, const float *bias,
                         float *y, uint8_t *saved, const int side)
{
    int64_t channels = patches->block->conv.out[2], stride = lk__patch_stride(chunk.count * channels * WIDTH);
    for (int64_t i = chunk.first; i < chunk.first + chunk.count; i++) {
        result r = lanes_points_result_of(patches, i, y, saved);
        for (int64_t c = 0; c < channels; c++, points += WIDTH)
            channel_of_y(&r, patches, c, points, stride, bias ? vec_broadcast(bias + c) : vec_zero(), side);
    }
}

void lk__y_of_points(const lk_patches *patches, const float *points, lk_patch_range chunk, const float *bias, float *y,
                     uint8_t *saved)
{
    if (patches->side == 2)
        transform_y(patches, points, chunk, bias, y, saved, 2);
    else
        transform_y(patches, points, chunk, bias, y, saved, 4);
}

/* --- dy ----------------------------------------------------------------------------------------------------------- */

/* Source of a patch of dy: its block's dy and what the forward pass saved. */
typedef struct gradient {
    const lk_lanes_block *block;
    position position;
    const float *dy;
    const vec_bits *signs;  /* NULL without relu */
    const uint8_t *winners; /* NULL unless the pooling is a maximum */
} gradient;

static gradient patch_gradient(const lk_patches *patches, const lk_lanes_grad *grad, int64_t index)
{
    const lk_lanes_block *block = patches->block;
    position p = position_of_patch(patches, index);
    size_t from = (size_t)p.images * lk__lanes_block_saved_bytes(block);
    return (gradient){.block = block,
                      .position = p,
                      .dy = (const float *)grad->dy +
                            p.images * lanes_points_block_floats(block->pool.out, block->pool.channels),
                      .signs = block->relu ? (const vec_bits *)(const void *)(grad->saved + from) : NULL,
                      .winners = block->max ? grad->saved + from : NULL};
}

/* Returns dy in the lanes in which relu let this pixel through, otherwise 0. */
LK_BODY vec let_through(const gradient *g, vec dy, int64_t row, int64_t column, int64_t channel)
{
    const int64_t *out = g->block->conv.out;
    return g->signs ? vec_where(mask_of_bits(g->signs[(row * out[1] + column) * out[2] + channel]), dy) : dy;
}

LK_BODY void load_pixels(const gradient *g, const lk_patches *patches, int64_t channel, vec *d, const int side)
{
    const int64_t *out = g->block->conv.out;
    for (int i = 0; i < side * side; i++) {
        int64_t row = g->position.row + i / side, column = g->position.column + i % side;
        d[i] = vec_zero();
        if (row < patches->used[0] && column < patches->used[1])
            d[i] = let_through(g, vec_load(g->dy + ((row * out[1] + column) * out[2] + channel) * WIDTH), row, column,
                               channel);
    }
}

/* Returns the part of a window's dy that goes to its pixel i. */
LK_BODY vec window_pixel(const gradient *g, vec dy, int64_t window, int64_t row, int64_t column, int i, int64_t channel)
{
    if (g->winners)
        return vec_where(mask_bytes_equal(g->winners + window, i), dy);
    return let_through(g, dy, 2 * row + i / 2, 2 * column + i % 2, channel);
}

LK_BODY void load_windows(const gradient *g, int64_t channel, vec *d, const int side)
{
    const lk_geometry *pool = &g->block->pool;
    for (int i = 0; i < side / 2 * (side / 2); i++) {
        int top = i / (side / 2) * 2, left = i % (side / 2) * 2;
        int64_t row = (g->position.row + top) / 2, column = (g->position.column + left) / 2;
        int64_t at = ((row * pool->out[1] + column) * pool->channels + channel) * WIDTH;
        bool inside = row < pool->out[0] && column < pool->out[1];
        vec dy = vec_zero();
        if (inside)
            dy = g->winners ? vec_load(g->dy + at) : vec_mul(vec_load(g->dy + at), vec_set(0.25F));
        for (int k = 0; k < 4; k++)
            d[(top + k / 2) * side + left + k % 2] =
                inside ? window_pixel(g, dy, at, row, column, k, channel) : vec_zero();
    }
}

LK_BODY void points_of_gradient(const vec *d, const int side, float *to, int64_t stride)
{
    vec half[SIDE * 4], column[4], m[SIDE];
    for (int c = 0; c < side; c++) {
        for (int r = 0; r < side; r++)
            column[r] = d[r * side + c];
        transform_gradient(column, side, m);
        for (int r = 0; r < SIDE; r++)
            half[r * side + c] = m[r];
    }
    for (int r = 0; r < SIDE; r++) {
        transform_gradient(half + r * side, side, m);
        for (int c = 0; c < SIDE; c++)
            vec_store(to + (r * SIDE + c) * stride, m[c]);
    }
}

LK_BODY void row_of_gradient(const vec *d, const int side, const int row, float *to, int64_t stride)
{
    vec half[4], column[4], m[SIDE];
    for (int c = 0; c < side; c++) {
        for (int r = 0; r < side; r++)
            column[r] = d[r * side + c];
        half[c] = gradient_point(column, side, row);
    }
    transform_gradient(half, side, m);
    for (int c = 0; c < SIDE; c++)
        vec_store(to + c * stride, m[c]);
}

/* Transforms one channel to all points, or, if row >= 0, to those of a row. */
LK_BODY void channel_of_dy(const gradient *g, const lk_patches *patches, int64_t channel, const int side, const int row,
                           float *to, int64_t stride)
{
    vec d[16];
    if (g->block->pool.kernel[0] == 2)
        load_windows(g, channel, d, side);
    else
        load_pixels(g, patches, channel, d, side);
    if (row < 0)
        points_of_gradient(d, side, to, stride);
    else
        row_of_gradient(d, side, row, to, stride);
}

LK_BODY void transform_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk,
                          lk_channel_range channels, const int side, const int row, float *points)
{
    int64_t stride = lk__patch_stride(chunk.count * channels.count * WIDTH);
    for (int64_t i = chunk.first; i < chunk.first + chunk.count; i++) {
        gradient g = patch_gradient(patches, grad, i);
        for (int64_t c = channels.first; c < channels.first + channels.count; c++, points += WIDTH)
            channel_of_dy(&g, patches, c, side, row, points, stride);
    }
}

void lk__points_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk, float *points)
{
    lk_channel_range all = {0, patches->block->conv.out[2]};
    if (patches->side == 2)
        transform_dy(patches, grad, chunk, all, 2, -1, points);
    else
        transform_dy(patches, grad, chunk, all, 4, -1, points);
}

typedef void (*row_fn)(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk,
                       lk_channel_range channels, float *points);

/* clang-format off */
#define ROW_OF_DY(side, row)                                                                                           \
    static void row_##side##_##row(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk,         \
                                   lk_channel_range channels, float *points)                                           \
    {                                                                                                                  \
        transform_dy(patches, grad, chunk, channels, side, row, points);                                               \
    }
/* clang-format on */
ROW_OF_DY(2, 0)
ROW_OF_DY(2, 1)
ROW_OF_DY(2, 2)
ROW_OF_DY(2, 3)
ROW_OF_DY(2, 4)
ROW_OF_DY(2, 5)
ROW_OF_DY(4, 0)
ROW_OF_DY(4, 1)
ROW_OF_DY(4, 2)
ROW_OF_DY(4, 3)
ROW_OF_DY(4, 4)
ROW_OF_DY(4, 5)

void lk__row_of_dy(const lk_patches *patches, const lk_lanes_grad *grad, lk_patch_range chunk,
                   lk_channel_range channels, int row, float *points)
{
    static const row_fn rows[2][SIDE] = {{row_2_0, row_2_1, row_2_2, row_2_3, row_2_4, row_2_5},
                                         {row_4_0, row_4_1, row_4_2, row_4_3, row_4_4, row_4_5}};
    rows[patches->side == 4][row](patches, grad, chunk, channels, points);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Puts WIDTH kernels into the lanes, tap by tap. Lanes beyond `count` become 0. */
LK_BODY void load_kernels(const float *w, int64_t count, const int taps, float *in_lanes)
{
    for (int64_t k = 0; k < WIDTH; k++)
        for (int i = 0; i < taps * taps; i++)
            in_lanes[i * WIDTH + k] = k < count ? w[k * taps * taps + i] : 0;
}

LK_BODY void transform_w(int64_t count, const int taps, const float *w, float *points)
{
    int64_t stride = lk__kernel_stride(count);
    _Alignas(64) float in_lanes[25 * WIDTH];
    for (int64_t k = 0; k < count; k += WIDTH, w += taps * taps * WIDTH, points += WIDTH) {
        vec half[SIDE * 5], g[5], t[SIDE];
        load_kernels(w, count - k, taps, in_lanes);
        for (int c = 0; c < taps; c++) {
            for (int r = 0; r < taps; r++)
                g[r] = vec_load(in_lanes + (r * taps + c) * WIDTH);
            transform_kernel(g, taps, t);
            for (int r = 0; r < SIDE; r++)
                half[r * taps + c] = t[r];
        }
        for (int r = 0; r < SIDE; r++) {
            transform_kernel(half + r * taps, taps, t);
            for (int c = 0; c < SIDE; c++)
                vec_store(points + (r * SIDE + c) * stride, t[c]);
        }
    }
}

void lk__points_of_w(int64_t count, int taps, const float *w, float *points)
{
    if (taps == 5)
        transform_w(count, 5, w, points);
    else
        transform_w(count, 3, w, points);
}

LK_BODY void transform_dw(int64_t count, const int taps, const float *points, float *dw)
{
    int64_t stride = lk__kernel_stride(count);
    _Alignas(64) float in_lanes[25 * WIDTH];
    for (int64_t k = 0; k < count; k += WIDTH, points += WIDTH) {
        vec half[5 * SIDE], u[SIDE], g[5];
        for (int c = 0; c < SIDE; c++) {
            for (int r = 0; r < SIDE; r++)
                u[r] = vec_load(points + (r * SIDE + c) * stride);
            transform_kernel_gradient(u, g, taps);
            for (int r = 0; r < taps; r++)
                half[r * SIDE + c] = g[r];
        }
        for (int r = 0; r < taps; r++) {
            transform_kernel_gradient(half + r * SIDE, g, taps);
            for (int c = 0; c < taps; c++)
                vec_store(in_lanes + (r * taps + c) * WIDTH, g[c]);
        }
        for (int64_t i = 0; i < WIDTH && k + i < count; i++)
            for (int t = 0; t < taps * taps; t++)
                *dw++ = in_lanes[t * WIDTH + i];
    }
}

void lk__dw_of_points(int64_t count, int taps, const float *points, float *dw)
{
    if (taps == 5)
        transform_dw(count, 5, points, dw);
    else
        transform_dw(count, 3, points, dw);
}
