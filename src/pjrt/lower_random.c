/* Random numbers: Philox4x32-10 on vectors of counters, with the host's bits (base/philox.h). */
#include "base/philox.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

/* --- Philox ------------------------------------------------------------------------------------------------------- */

static lk_hlo lower_xor(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "xor", a, b);
}

/* Sets *high and *low to the halves of factor x. */
static void lower_multiply_wide(lk_lowering *l, uint32_t factor, lk_hlo x, lk_hlo *high, lk_hlo *low)
{
    lk_hlo wide = lk__hlo_convert(l, x, LK_HLO_U64);
    lk_hlo product = lk__hlo_mul(l, wide, lk__hlo_integer(l, LK_HLO_U64, factor));
    lk_hlo bits = lk__hlo_integer(l, LK_HLO_U64, 32);
    *low = lk__hlo_convert(l, product, LK_HLO_U32);
    *high = lk__hlo_convert(l, lk__hlo_binary(l, "shift_right_logical", product, bits), LK_HLO_U32);
}

/* Replaces counters, ui32, by the words that Philox makes of them. */
static void lower_philox(lk_lowering *l, const uint32_t key[2], lk_hlo words[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        lk_hlo high0, low0, high1, low1;
        lower_multiply_wide(l, 0xD2511F53u, words[0], &high0, &low0);
        lower_multiply_wide(l, 0xCD9E8D57u, words[2], &high1, &low1);
        words[0] = lower_xor(l, lower_xor(l, high1, words[1]), lk__hlo_integer(l, LK_HLO_U32, k0));
        words[1] = low1;
        words[2] = lower_xor(l, lower_xor(l, high0, words[3]), lk__hlo_integer(l, LK_HLO_U32, k1));
        words[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The upper half of a 64-bit number. */
static lk_hlo lower_upper_half(lk_lowering *l, lk_hlo x)
{
    lk_hlo bits = lk__hlo_integer(l, x.type, 32);
    return lk__hlo_convert(l, lk__hlo_binary(l, "shift_right_logical", x, bits), LK_HLO_U32);
}

void lk__hlo_random_block(lk_lowering *l, const lk_random_key *key, lk_hlo block, lk_hlo sample, lk_hlo epoch,
                          lk_hlo words[4])
{
    uint32_t philox_key[2], counter[4];
    lk__philox_start(key, philox_key, counter);
    words[0] = lk__hlo_convert(l, block, LK_HLO_U32);
    words[1] = lk__hlo_convert(l, sample, LK_HLO_U32);
    words[2] = lk__hlo_convert(l, epoch, LK_HLO_U32);
    words[3] = lower_xor(l, lower_upper_half(l, sample), lower_upper_half(l, epoch));
    lower_philox(l, philox_key, words);
}

/* Puts four words each of [N, blocks] in a row, and cuts them to `count`: [N, count]. */
static lk_hlo lower_join_words(lk_lowering *l, const lk_hlo words[4], int64_t count)
{
    lk_hlo columns[4];
    int64_t n = words[0].size[0], blocks = words[0].size[1];
    for (int i = 0; i < 4; i++)
        columns[i] = lk__hlo_reshape(l, words[i], 3, (int64_t[]){n, blocks, 1});
    lk_hlo row = lk__hlo_reshape(l, lk__hlo_concat(l, columns, 4, 2), 2, (int64_t[]){n, 4 * blocks});
    return lk__hlo_slice_axis(l, row, 1, 0, count);
}

/* The first `count` words of the streams of samples [N, 1]; sample and epoch are 64-bit integers: ui32 [N, count]. */
static lk_hlo lower_stream(lk_lowering *l, const lk_random_key *key, lk_hlo samples, lk_hlo epoch, int64_t count)
{
    lk_hlo like = {.rank = 2, .size = {samples.size[0], (count + 3) / 4}}, words[4];
    lk__hlo_random_block(l, key, lk__hlo_iota(l, LK_HLO_U32, like, 1), samples, epoch, words);
    for (int i = 0; i < 4; i++)
        words[i] = lk__hlo_add(l, words[i], lk__hlo_fill(l, lk__hlo_integer(l, LK_HLO_U32, 0), like));
    return lower_join_words(l, words, count);
}

/* --- uniform and normal ------------------------------------------------------------------------------------------- */

/* The words of a creation, ui32 [count]. */
static lk_hlo lower_creation_words(lk_lowering *l, const lk_random_key *key, int64_t count)
{
    int64_t one[] = {1, 1};
    lk_hlo sample = lk__hlo_reshape(l, lk__hlo_integer(l, LK_HLO_U64, (int64_t)key->sample), 2, one);
    lk_hlo words = lower_stream(l, key, sample, lk__hlo_integer(l, LK_HLO_U64, (int64_t)key->epoch), count);
    return lk__hlo_reshape(l, words, 1, &count);
}

/* (word + 0.5) / 2^32, f64. */
static lk_hlo lower_unit_numbers(lk_lowering *l, lk_hlo words)
{
    lk_hlo number = lk__hlo_add(l, lk__hlo_convert(l, words, LK_F64), lk__hlo_number(l, LK_F64, 0.5));
    return lk__hlo_mul(l, number, lk__hlo_number(l, LK_F64, 0x1p-32));
}

void lk__lower_uniform(lk_lowering *l, const lk_call *call)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    lk_hlo u = lower_unit_numbers(l, lower_creation_words(l, &attrs->key, lk_shape_count(call->out[0]->shape)));
    lk_hlo scaled = lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, attrs->b - attrs->a), u);
    lk_hlo y = lk__hlo_add(l, lk__hlo_number(l, LK_F64, attrs->a), scaled);
    lk__hlo_write(l, call->out[0], lk__hlo_reshape_as(l, y, call->out[0]->shape));
}

/* Box and Muller's method: words 2 k and 2 k + 1 make two normal numbers. */
void lk__lower_normal(lk_lowering *l, const lk_call *call)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    int64_t count = lk_shape_count(call->out[0]->shape), pairs = (count + 1) / 2, column[] = {pairs, 1};
    lk_hlo u = lower_unit_numbers(l, lower_creation_words(l, &attrs->key, 2 * pairs));
    u = lk__hlo_reshape(l, u, 2, (int64_t[]){pairs, 2});
    lk_hlo minus_two = lk__hlo_number(l, LK_F64, -2), turn = lk__hlo_number(l, LK_F64, 6.28318530717958647692);
    lk_hlo radius = lk__hlo_unary(l, "log", lk__hlo_slice_axis(l, u, 1, 0, 1));
    radius = lk__hlo_unary(l, "sqrt", lk__hlo_mul(l, minus_two, radius));
    lk_hlo angle = lk__hlo_mul(l, turn, lk__hlo_slice_axis(l, u, 1, 1, 2));
    lk_hlo both[] = {lk__hlo_mul(l, radius, lk__hlo_unary(l, "cosine", angle)),
                     lk__hlo_mul(l, radius, lk__hlo_unary(l, "sine", angle))};
    both[0] = lk__hlo_reshape(l, both[0], 2, column);
    both[1] = lk__hlo_reshape(l, both[1], 2, column);
    lk_hlo z = lk__hlo_reshape(l, lk__hlo_concat(l, both, 2, 1), 1, (int64_t[]){2 * pairs});
    z = lk__hlo_slice_axis(l, z, 0, 0, count);
    lk_hlo scaled = lk__hlo_rounded_mul(l, lk__hlo_number(l, LK_F64, attrs->b), z);
    lk_hlo y = lk__hlo_add(l, lk__hlo_number(l, LK_F64, attrs->a), scaled);
    lk__hlo_write(l, call->out[0], lk__hlo_reshape_as(l, y, call->out[0]->shape));
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Compares each word with rate 2^32: true if it is below. */
static lk_hlo lower_is_dropped(lk_lowering *l, lk_hlo words, double rate)
{
    double bound = ceil(rate * 0x1p32);
    if (bound < 1)
        return lk__hlo_fill(l, lk__hlo_number(l, LK_HLO_BOOL, 0), words);
    return lk__hlo_compare(l, words, "LE", lk__hlo_integer(l, LK_HLO_U32, (int64_t)bound - 1));
}

/* A sample whose index is out of range becomes NaN, as on GPUs. */
lk_hlo lk__hlo_dropout(lk_lowering *l, lk_hlo x, lk_hlo indices, const lk_dropout_attrs *attrs)
{
    x = lk__hlo_convert(l, x, LK_F64);
    int64_t n = x.size[0], count = n > 0 ? lk__hlo_count(&x) / n : 0;
    lk_hlo samples = lk__hlo_reshape(l, indices, 2, (int64_t[]){n, 1});
    lk_hlo words = lower_stream(l, &attrs->key, samples, lk__hlo_step(l), count);
    lk_hlo is_dropped = lk__hlo_reshape(l, lower_is_dropped(l, words, attrs->rate), x.rank, x.size);
    lk_hlo scaled = lk__hlo_mul(l, x, lk__hlo_number(l, LK_F64, 1 / (1 - attrs->rate)));
    lk_hlo y = lk__hlo_select(l, is_dropped, lk__hlo_number(l, LK_F64, 0), scaled);
    lk_hlo is_valid = lk__hlo_is_inside(l, indices, (int64_t)UINT32_MAX + 1);
    return lk__hlo_select_rows(l, is_valid, y, lk__hlo_number(l, LK_F64, NAN));
}

void lk__lower_dropout(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]), indices = lk__hlo_read(l, call->in[1]);
    lk__hlo_write(l, call->out[0], lk__hlo_dropout(l, x, indices, LK_ATTRS(call, lk_dropout_attrs)));
}
