/* Sums over shards of products that are left as their factors, bit for bit against sums of products that were computed
 * one by one. */
#include "dist/dist_testing.h"

#include "core/backend.h"
#include "core/products.h"
#include "core/tensor.h"
#include "cpu/isa.h"
#include "dist/sum/shard_sum.h"
#include "ops/matmul.h"
#include "program/defer.h"
#include "lockstep/program.h"

#include <fenv.h>

/* The product dw = x' dz has INPUTS by UNITS elements. Up to some number of samples in a shard it is left as factors.
 */
enum { INPUTS = 150, UNITS = 75, MOST_SAMPLES = 40, QUANTITIES = 3 };

typedef struct product_case {
    int64_t shards, samples;
    int k;
    bool bf16; /* the factors; the product is f32 */
} product_case;

/* The gradient of a dense layer's weights, that of its bias, and a product that the program itself reads. */
static lk_status pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const product_case *c = user;
    lk_dtype dtype = c->bf16 ? LK_BF16 : LK_F32;
    lk_tensor *xt = lk_transpose(lk_cast(in[0], dtype), 0, 1), *dy = lk_cast(in[1], dtype);
    lk_tensor *read = lk__matmul(LK_HERE, xt, dy, true);
    out[0] = lk__matmul(LK_HERE, xt, dy, true);
    out[1] = lk_sum(in[1], &(lk_reduce_opts){.axes = {0}, .n_axes = 1});
    out[2] = lk_add(read, read);
    return out[0] && out[1] && out[2] ? LK_OK : lk_error_status();
}

static lk_tensor *some(lk_device *device, lk_shape shape, uint32_t seed)
{
    static float values[MOST_SAMPLES * INPUTS];
    for (int64_t i = 0; i < lk_shape_count(shape); i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return lk_tensor_from(device, LK_F32, shape, values);
}

/* Runs the pass on one shard, and adds its values to the sum. Returns whether its product was left as factors. */
static bool add_shard(product_case *c, lk_shard_sum *sum, int64_t shard, int device, bool defer)
{
    lk_range samples = lk_part(c->samples, c->shards, shard);
    int64_t n = samples.end - samples.begin;
    bool left = false;
    lk_scope_begin();
    if (n == 0) {
        assert_ok(lk_shard_sum_add(sum, shard, NULL));
    } else {
        lk_tensor *in[] = {some(devices[device], LK_SHAPE(n, INPUTS), (uint32_t)shard),
                           some(devices[device], LK_SHAPE(n, UNITS), (uint32_t)(shard + 100))};
        lk_tensor *out[QUANTITIES];
        lk_program *program = lk_program_record(devices[device], pass, c, in, 2, QUANTITIES, NULL);
        assert_non_null(program);
        if (defer)
            lk__program_defer_products(program);
        assert_ok(lk_program_run(program, in, 0, out));
        left = out[0]->storage->is_product;
        assert_false(out[1]->storage->is_product || out[2]->storage->is_product);
        assert_ok(lk_shard_sum_add(sum, shard, out));
        lk_program_release(program);
    }
    lk_scope_end();
    return left;
}

/* Returns a part of a larger tensor, with the shape of a product. */
static lk_tensor *place_of_product(void)
{
    lk_tensor *row = lk_zeros(devices[0], LK_F32, LK_SHAPE(2 * INPUTS * UNITS));
    return lk_reshape(lk_slice(row, 0, UNITS, UNITS + INPUTS * UNITS), LK_SHAPE(INPUTS, UNITS));
}

/* Reads the sums on the last device to values[QUANTITIES][INPUTS * UNITS]. Returns how many products were left as
 * factors. */
static int sum_up(product_case *c, bool defer, float *values)
{
    lk_strategy *strategy = lk_strategy_new(c->k == 1 ? "one-device" : "mirrored", devices, c->k);
    assert_non_null(strategy);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, c->shards, QUANTITIES);
    assert_non_null(sum);
    lk_tensor *sums[DEVICES * QUANTITIES], *places[QUANTITIES] = {place_of_product()};
    int left = 0;
    if (c->k == 1)
        lk__shard_sum_set_places(sum, places);
    for (int64_t i = 0; i < c->shards; i++)
        for (int d = 0; d < c->k; d++) {
            lk_range own = lk_part(c->shards, c->k, d);
            if (own.begin + i < own.end)
                left += add_shard(c, sum, own.begin + i, d, defer);
        }
    assert_ok(lk_shard_sum_finish(sum, sums));
    if (c->k == 1 && c->shards > 1 && c->samples > 1)
        assert_ptr_equal(sums[0], places[0]);
    for (int i = 0; i < QUANTITIES; i++) {
        lk_tensor *last = sums[(c->k - 1) * QUANTITIES + i];
        assert_false(last->storage->is_product);
        assert_ok(lk_tensor_read(last, values + (ptrdiff_t)i * INPUTS * UNITS,
                                 (size_t)lk_tensor_count(last) * sizeof(float)));
    }
    for (int i = 0; i < c->k * QUANTITIES; i++)
        lk_tensor_release(sums[i]);
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
    return left;
}

static void check_bits(bool bf16)
{
    static float want[QUANTITIES * INPUTS * UNITS], have[QUANTITIES * INPUTS * UNITS];
    static const int64_t shards[] = {1, 2, 3, 7, 8, 12, 15, 16, 28};
    bool can_leave = devices[0]->backend->products && lk__isa() && (!bf16 || lk__isa()->bf16);
    int left = 0;
    for (size_t v = 0; v < sizeof shards / sizeof *shards; v++)
        for (int64_t a_shard = 0; a_shard < 15; a_shard += 2)
            for (int k = 1; k <= 5 && k <= shards[v]; k++) {
                product_case one = {shards[v], a_shard * shards[v] + shards[v] / 2, 1, bf16}, c = one;
                if (one.samples == 0)
                    continue;
                c.k = k;
                lk_scope_begin();
                if (k == 1)
                    assert_int_equal(sum_up(&one, false, want), 0);
                left += sum_up(&c, true, have);
                lk_scope_end();
                if (memcmp(have, want, sizeof want) != 0)
                    fail_msg("%lld samples in %lld shards on %d devices: other bits", (long long)c.samples,
                             (long long)c.shards, k);
            }
    assert_int_equal(left > 0, can_leave);
}

static void the_bits_are_those_of_single_products(void **state)
{
    (void)state;
    check_bits(false);
}

static void so_they_are_with_factors_in_bf16(void **state)
{
    (void)state;
    check_bits(true);
}

/* The thread that reads has to compute it. */
static void a_released_devices_product_has_the_devices_rounding(void **state)
{
    (void)state;
    static float want[INPUTS * UNITS], have[INPUTS * UNITS];
    product_case c = {.bf16 = false};
    lk_device *device = lk_device_open("cpu");
    assert_non_null(device);
    lk_scope_begin();
    lk_tensor *in[] = {some(device, LK_SHAPE(20, INPUTS), 1), some(device, LK_SHAPE(20, UNITS), 2)}, *out[QUANTITIES];
    lk_program *program = lk_program_record(device, pass, &c, in, 2, QUANTITIES, NULL);
    assert_non_null(program);
    lk__program_defer_products(program);
    assert_ok(lk_program_run(program, in, 0, out));
    assert_ok(lk_tensor_read(out[0], want, sizeof want));
    lk_program_release(program);
    lk_device_release(device);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    lk_status status = lk_tensor_read(out[0], have, sizeof have);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    assert_ok(status);
    assert_memory_equal(have, want, sizeof want);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIST_TEST(the_bits_are_those_of_single_products),
        DIST_TEST(so_they_are_with_factors_in_bf16),
        DIST_TEST(a_released_devices_product_has_the_devices_rounding),
    };
    return RUN_DIST_TESTS(tests);
}
