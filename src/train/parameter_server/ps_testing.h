/* Shared by the tests of a chief: the coordinator of a training in which no process computes. Time passes only when a
 * test says so. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/parameter_server/ps_members.h"

#include "base/mem.h"
#include "lockstep/build.h"
#include "train/plan/agreement.h"

#include <stdio.h>
#include <string.h>

enum { RUN = 77, SHARDS = 4, BATCHES = 8, BATCH_SIZE = 16 };

/* Limit on silence in seconds: longer than any test. */
static const double timeout = 1e6;

typedef struct chief {
    lk_trainer *plain; /* holds the model and the settings that all must share */
    lk_post *post;
    lk_ps_identity identity;
    lk_ps_coordinator *coordinator;
    lk_ps_layout layout;
} chief;

static inline bool has_zmq(void)
{
    bool has = lk_build_has("ZeroMQ");
    if (!has)
        puts("SKIP: this build has no ZeroMQ");
    return has;
}

static inline void ok(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s", lk_error_message());
}

static inline lk_train_config settings(void)
{
    lk_train_config config;
    ok(lk_train_defaults(NULL, &config));
    config.model = "lenet";
    config.data.name = "synthetic";
    config.devices.spec = "cpu:0";
    config.data.limit_train = BATCHES * BATCH_SIZE;
    config.data.limit_val = 0;
    config.batch_size = BATCH_SIZE;
    config.devices.shards = SHARDS;
    return config;
}

static inline void begin_epoch(chief *c, int64_t epoch)
{
    const double rates[BATCHES] = {0.01};
    ok(lk__ps_coordinator_begin(c->coordinator, &(lk_ps_epoch){.epoch = epoch,
                                                               .first = epoch * BATCHES,
                                                               .count = BATCHES,
                                                               .batch_size = BATCH_SIZE,
                                                               .samples = BATCHES * BATCH_SIZE,
                                                               .rates = rates}));
}

static inline void open_chief(chief *c)
{
    lk_train_config config = settings();
    void *fields;
    lk_ps_training training = {.setup = {.run = RUN,
                                         .batches = 10 * BATCHES,
                                         .shards = SHARDS,
                                         .max_staleness = LK_NO_STALENESS_LIMIT,
                                         .optimizer = LK_SGD},
                               .most_nodes = SHARDS,
                               .layout = &c->layout};
    *c = (chief){.identity = {.servers = 1, .timeout = timeout, .join_timeout = 100 * timeout}};
    c->identity.chief = (lk_address){.numeric = "127.0.0.1", .is_loopback = true};
    ok(lk__post_open(NULL, &c->post));
    c->plain = lk_trainer_new(&config);
    if (!c->plain)
        fail_msg("%s", lk_error_message());
    ok(lk__ps_layout_new(c->plain->model, 1, 0, &c->layout));
    ok(lk__ps_coordinator_open(c->post, &c->identity, &c->coordinator));
    c->plain->server.has_optimizer = true; /* as in a chief and its workers */
    ok(lk__agreement_list(c->plain, &fields, &training.agreement_bytes));
    training.agreement = fields;
    training.variables = lk_trainer_variables(c->plain, 0);
    ok(lk__ps_coordinator_start(c->coordinator, &training));
    lk__free(fields);
    begin_epoch(c, 0);
}

static inline void close_chief(chief *c)
{
    lk__ps_coordinator_release(c->coordinator);
    lk__post_release(c->post);
    lk__ps_layout_free(&c->layout);
    lk_trainer_release(c->plain);
}

static inline void let_time_pass(chief *c, double seconds)
{
    pthread_mutex_lock(&c->coordinator->mutex);
    ok(lk__ps_members_tick(c->coordinator, seconds));
    pthread_mutex_unlock(&c->coordinator->mutex);
}

/* Index of a worker's seat; -1: it has none. */
static inline int seat_of(chief *c, int64_t worker)
{
    pthread_mutex_lock(&c->coordinator->mutex);
    const lk_ps_seat *seat = lk__ps_seats_of_worker(&c->coordinator->seats, worker);
    int index = seat ? (int)(seat - c->coordinator->seats.seats) : -1;
    pthread_mutex_unlock(&c->coordinator->mutex);
    return index;
}

static inline lk_async_report report_of(chief *c)
{
    lk_async_report report;
    lk__ps_coordinator_report(c->coordinator, &report);
    return report;
}
