/* Buckets of gradients are exchanged while backward continues, and change no bit. */
#include "small_network.h"

#include "core/trace.h"

/* In megabytes: one bucket; one for each gradient; two sizes between; more than all gradients. */
static const double sizes[] = {0, 1e-6, 0.0005, 0.001, 25};
enum { SIZES = sizeof sizes / sizeof *sizes };

static lk_train_config settings(void)
{
    lk_train_config config = small_training();
    config.data.limit_train = 51; /* batches of 24, 24 and 3: five of the eight shards are empty */
    config.data.limit_val = 11;
    config.batch_size = 24;
    config.devices.shards = 8;
    config.batch_norm.mode = LK_BN_SHARD;
    config.optimizer.base_lr = 0.05;
    return config;
}

static void same_for_any_size(lk_train_config config)
{
    outcome first;
    for (int devices = 1; devices <= 3; devices++) {
        char spec[16];
        snprintf(spec, sizeof spec, "%dxcpu", devices);
        config.devices.spec = spec;
        for (int i = 0; i < SIZES; i++) {
            config.devices.bucket_mb = sizes[i];
            outcome out = train_small(&config);
            if (devices == 1 && i == 0)
                first = out;
            else
                same(&first, &out);
        }
    }
}

static void buckets_change_no_bit(void **state)
{
    (void)state;
    lk_train_config config = settings();
    same_for_any_size(config);
    config.execution.fuse = LK_FUSE_OFF;
    same_for_any_size(config);
    config.execution.dtype = LK_PRECISION_BF16;
    same_for_any_size(config);
    config = settings();
    config.batch_norm = (lk_batch_norm_config){.mode = LK_BN_GROUP, .group = 12}; /* two groups of four shards */
    same_for_any_size(config);
}

static void accumulated_buckets_change_no_bit(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.accumulate = 2;
    config.optimizer.clip_norm = 0.1;
    config.optimizer.name = "adam";
    same_for_any_size(config);
}

static void the_eager_executor_has_no_buckets(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.execution.fuse = LK_FUSE_OFF;
    config.devices.bucket_mb = 1e-6;
    config.devices.spec = "2xcpu";
    outcome programs = train_small(&config);
    config.execution.executor = LK_EXECUTOR_EAGER;
    outcome eager = train_small(&config);
    same(&programs, &eager);
}

/* --- when they are sent ----------------------------------------------------------------------------------------------
 */

typedef struct order {
    int programs;        /* pieces of shards' passes that the device ran */
    int exchanges_early; /* operators of the exchange that ran before the last piece */
} order;

/* Events are in the order of their ends: a piece's operators come before the piece. Sums may be pieces too. */
static order order_on(const lk_trace_track *track)
{
    order found = {0};
    int exchanges = 0;
    uint32_t phase = LK_PHASE_COMPUTE;
    for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next) {
        for (int i = 0; i < chunk->n; i++) {
            const lk_trace_event *event = &chunk->events[i];
            if (event->kind == LK_TRACE_CALL)
                phase = event->number;
            exchanges += event->kind == LK_TRACE_CALL && phase == LK_PHASE_EXCHANGE;
            if (event->kind == LK_TRACE_PROGRAM && phase == LK_PHASE_COMPUTE) {
                found.programs++;
                found.exchanges_early = exchanges;
            }
        }
    }
    return found;
}

/* One step of eight shards on two devices. */
static void trace_a_step(double bucket_mb, order orders[2])
{
    lk_train_config config = settings();
    config.devices.spec = "2xcpu";
    config.devices.bucket_mb = bucket_mb;
    int n = 0;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trace_start(NULL));
    assert_ok(lk_trainer_run(trainer, 1));
    lk_trace *trace = lk_trace_stop();
    assert_non_null(trace);
    for (const lk_trace_track *track = trace->tracks; track; track = track->next) {
        if (track->kind != LK_TRACK_DEVICE)
            continue;
        assert_true(n < 2);
        orders[n++] = order_on(track);
    }
    assert_int_equal(n, 2);
    lk_trace_release(trace);
    lk_trainer_release(trainer);
}

static void buckets_leave_during_backward(void **state)
{
    (void)state;
    order whole[2], cut[2];
    trace_a_step(0, whole);
    trace_a_step(0.0005, cut);
    for (int d = 0; d < 2; d++) {
        assert_int_equal(whole[d].programs, 4);
        assert_int_equal(whole[d].exchanges_early, 0);
        assert_true(cut[d].programs >= 4 * 3);
        assert_true(cut[d].exchanges_early > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_change_no_bit),
        cmocka_unit_test(accumulated_buckets_change_no_bit),
        cmocka_unit_test(the_eager_executor_has_no_buckets),
        cmocka_unit_test(buckets_leave_during_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
