#include "soak_draw.h"

#include "soak_model.h"
#include "soak_rules.h"

#include <stdlib.h>
#include <string.h>

static int draw_number(const soak_case *drawn, const char *name, int otherwise)
{
    const char *value = soak_settings_value(&drawn->settings, name);
    return value ? atoi(value) : otherwise;
}

static bool draw_is(const soak_case *drawn, const char *name, const char *value)
{
    const char *given = soak_settings_value(&drawn->settings, name);
    return given && strcmp(given, value) == 0;
}

/* --- an attempt ----------------------------------------------------------------------------------------------------
 */

/* Returns whether parameter-server takes the case's settings; docs/strategies.md lists what it refuses. */
static bool draw_allows_servers(const soak_case *drawn)
{
    return drawn->fixed_devices == 0 && !draw_is(drawn, "bn", "sync") && draw_number(drawn, "accumulate", 1) == 1 &&
           draw_number(drawn, "precise-bn", 0) == 0 && draw_number(drawn, "audit-every", 0) == 0 &&
           !soak_settings_value(&drawn->settings, "ema") && !soak_settings_value(&drawn->settings, "freeze");
}

static void draw_shape(soak_random *random, const soak_means *means, const soak_case *drawn, soak_attempt *attempt)
{
    bool is_cpu = strcmp(drawn->device_kind, "cpu") == 0, is_compressed = draw_is(drawn, "compress", "bf16");
    int kind = (int)soak_random_int(random, 0, 99);
    attempt->shape = SOAK_LOCAL;
    if (is_compressed || (is_cpu && drawn->fixed_devices == 0 && kind < 25))
        attempt->shape = SOAK_RANKS;
    else if (is_cpu && drawn->fixed_devices == 0 && means->has_mpi && kind < 28)
        attempt->shape = SOAK_HOSTS;
    else if (is_cpu && means->has_zmq && draw_allows_servers(drawn) && kind < 50)
        attempt->shape = kind < 40 ? SOAK_SERVERS : SOAK_ROLES;

    /* As many devices as there are shards, at most 8; an explicit --shards is never raised. */
    int most = draw_number(drawn, "shards", 1);
    most = most < 8 ? most : 8;
    if (drawn->fixed_devices > 0) {
        do
            attempt->processes = attempt->shape == SOAK_RANKS ? (int)soak_random_int(random, 1, 4) : 1;
        while (drawn->fixed_devices % attempt->processes != 0);
        attempt->devices = drawn->fixed_devices / attempt->processes;
    } else {
        attempt->processes = attempt->shape == SOAK_LOCAL ? 1 : (int)soak_random_int(random, 1, most < 4 ? most : 4);
        attempt->devices = (int)soak_random_int(random, 1, most / attempt->processes);
    }
    attempt->servers = 1;
    if (!draw_is(drawn, "optimizer", "lars") && !soak_settings_value(&drawn->settings, "clip-norm"))
        attempt->servers = (int)soak_random_int(random, 1, 2);
}

static void draw_add(soak_attempt *attempt, const char *name, bool is_launch, const char *value)
{
    const soak_row *row = soak_row_of(name, is_launch);
    soak_settings_add(&attempt->settings, row->option, is_launch, value);
}

static void draw_add_number(soak_attempt *attempt, const char *name, bool is_launch, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    draw_add(attempt, name, is_launch, text);
}

static void draw_devices(soak_random *random, const soak_case *drawn, soak_attempt *attempt)
{
    char text[SOAK_VALUE_BYTES] = "";
    const char *kind = drawn->device_kind;
    bool is_cpu = strcmp(kind, "cpu") == 0;
    int n = attempt->devices, form = (int)soak_random_int(random, 0, 3);
    if (is_cpu && form == 0)
        snprintf(text, sizeof text, "%d", n);
    else if (is_cpu && form == 1 && n > 1)
        for (int i = 0; i < n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%scpu:%d", i ? "," : "", i % 2);
    else
        snprintf(text, sizeof text, "%dx%s%s", n, kind, is_cpu ? ":0" : "");
    draw_add(attempt, "devices", false, text);
}

static void draw_optimizer_state(soak_random *random, soak_attempt *attempt)
{
    if (soak_random_chance(random, 0.4))
        draw_add(attempt, "optimizer-state", false, "sharded");
}

static void draw_local_strategy(soak_random *random, const soak_case *drawn, soak_attempt *attempt)
{
    int form = (int)soak_random_int(random, 0, 3);
    if (form != 2)
        draw_optimizer_state(random, attempt);
    if (form == 0 || draw_is(drawn, "reduce", "nccl"))
        return;
    if (form == 1 && attempt->devices == 1) {
        draw_add(attempt, "strategy", false, "one-device");
    } else if (form == 1) {
        draw_add(attempt, "strategy", false, "mirrored");
    } else if (form == 2) {
        draw_add(attempt, "strategy", false, "central-storage");
        if (soak_random_chance(random, 0.5))
            draw_add(attempt, "storage", false, strcmp(drawn->device_kind, "cuda:0") == 0 ? "cuda:0" : "cpu:0");
    }
}

static void draw_placed(soak_random *random, const soak_case *drawn, soak_attempt *attempt)
{
    draw_devices(random, drawn, attempt);
    if (soak_attempt_has_servers(attempt))
        draw_add(attempt, "max-staleness", false, "0");
    if (attempt->shape == SOAK_LOCAL) {
        draw_local_strategy(random, drawn, attempt);
    } else if (attempt->shape == SOAK_RANKS) {
        draw_add_number(attempt, "processes", true, attempt->processes);
        draw_optimizer_state(random, attempt);
    } else if (attempt->shape == SOAK_HOSTS) {
        char text[32];
        snprintf(text, sizeof text, "localhost:%d", attempt->processes);
        draw_add(attempt, "hosts", true, text);
        if (soak_random_chance(random, 0.5))
            draw_add(attempt, "interfaces", true, soak_random_chance(random, 0.5) ? "lo" : "127.0.0.0/8");
        draw_optimizer_state(random, attempt);
    } else if (attempt->shape == SOAK_SERVERS) {
        draw_add_number(attempt, "workers", true, attempt->processes);
        if (attempt->servers > 1)
            draw_add_number(attempt, "servers", true, attempt->servers);
    }
}

static void draw_settings(soak_context *context, const soak_row *featured, soak_settings *settings)
{
    int count;
    const soak_row *rows = soak_rows(&count);
    const soak_attempt *attempt = context->attempt;
    bool is_launched = attempt && attempt->shape != SOAK_LOCAL && attempt->shape != SOAK_ROLES;
    for (int i = 0; i < count; i++) {
        char text[SOAK_VALUE_BYTES];
        const soak_row *row = &rows[i];
        if (row->is_for_all == (attempt != NULL) || (row->is_launch && !is_launched))
            continue;
        if (soak_row_draw(row, context, row == featured, text))
            soak_settings_add(settings, row->option, row->is_launch, text);
    }
}

/* An elastic training may go on after a kill, and has the same bits. */
static void draw_elastic(soak_random *random, const soak_case *drawn, soak_attempt *attempt)
{
    bool is_of_ranks = attempt->shape == SOAK_RANKS || attempt->shape == SOAK_HOSTS;
    if (!is_of_ranks || drawn->fixed_devices > 0 || !soak_random_chance(random, 0.4))
        return;
    draw_add(attempt, "elastic", true, "true");
    if (soak_random_chance(random, 0.3))
        draw_add_number(attempt, "min-ranks", true, (int)soak_random_int(random, 1, attempt->processes));
    if (attempt->shape != SOAK_HOSTS || !soak_random_chance(random, 0.5))
        return;
    for (int i = 0; i < attempt->settings.count; i++)
        if (strcmp(attempt->settings.at[i].row->name, "hosts") == 0) {
            soak_settings_remove(&attempt->settings, i);
            break;
        }
    char file[32];
    snprintf(file, sizeof file, "../inputs/hosts-%d", attempt->processes);
    draw_add(attempt, "hosts-file", true, file);
}

static void draw_disturbances(soak_random *random, const soak_case *drawn, soak_attempt *attempt)
{
    attempt->disturbance_count = soak_random_chance(random, 0.75) ? 1 : 2;
    for (int i = 0; i < attempt->disturbance_count; i++) {
        soak_disturbance *d = &attempt->disturbances[i];
        d->kind = (soak_disturbance_kind)soak_random_int(random, 0, SOAK_DISTURBANCE_KINDS - 1);
        if (d->kind == SOAK_LOSE && attempt->shape != SOAK_RANKS && attempt->shape != SOAK_SERVERS)
            d->kind = SOAK_KILL;
        /* The emulation of GPUs ends by an exception when it gets no memory. */
        if (d->kind == SOAK_MEMORY && strcmp(drawn->device_kind, "cuda:0") == 0)
            d->kind = SOAK_PAUSE;
        d->moment = soak_random_real(random, 0, 1.2);
        d->choice = soak_random_bits(random);
    }
    if (soak_attempt_has(attempt, SOAK_LOSE))
        draw_add_number(attempt, "max-restarts", true, (int)soak_random_int(random, 3, 5));
    else
        draw_elastic(random, drawn, attempt);
}

static void draw_attempt(soak_context *context, const soak_means *means, const soak_row *featured, bool is_last,
                         soak_attempt *attempt)
{
    soak_random *random = context->random;
    draw_shape(random, means, context->drawn, attempt);
    attempt->is_synchronous = soak_random_chance(random, 0.05);
    /* Checkpoints of a large network would then be written for minutes. */
    bool is_large = draw_is(context->drawn, "model", "resnet18") || draw_is(context->drawn, "model", "wrn-16-10");
    attempt->is_slow = soak_random_chance(random, 0.3) && !is_large;
    attempt->is_overriding = soak_random_chance(random, 0.1);
    attempt->has_keys = soak_random_chance(random, 0.3);
    attempt->has_cluster = soak_random_chance(random, 0.3);
    draw_placed(random, context->drawn, attempt);
    context->attempt = attempt;
    draw_settings(context, featured, &attempt->settings);
    context->attempt = NULL;
    if (!is_last)
        draw_disturbances(random, context->drawn, attempt);
}

/* --- a case --------------------------------------------------------------------------------------------------------
 */

/* Settings with which the bits depend on the number of devices. */
static void draw_fixed_devices(soak_random *random, soak_case *drawn)
{
    int shards = draw_number(drawn, "shards", 1);
    bool is_cpu = strcmp(drawn->device_kind, "cpu") == 0, is_gpu = strncmp(drawn->device_kind, "cuda", 4) == 0;
    if (is_cpu && soak_random_chance(random, 0.04))
        soak_settings_add(&drawn->settings, soak_row_of("compress", false)->option, false, "bf16");
    else if (is_gpu && soak_random_chance(random, 0.2))
        soak_settings_add(&drawn->settings, soak_row_of("reduce", false)->option, false, "nccl");
    else
        return;
    drawn->fixed_devices = (int)soak_random_int(random, 1, shards < 4 ? shards : 4);
}

void soak_case_draw(uint64_t seed, const soak_means *means, soak_case *drawn)
{
    int count;
    const soak_row *rows = soak_rows(&count);
    soak_random random = {seed};
    soak_context context = {.random = &random, .drawn = drawn};
    *drawn = (soak_case){.seed = seed, .device_kind = "cpu"};
    int kind = (int)soak_random_int(&random, 0, 99);
    if (kind < 8)
        drawn->device_kind = "ref";
    else if (kind < 20 && means->has_cuda)
        drawn->device_kind = "cuda:0";
    /* Every row is given by force in some cases, so none stays rare. */
    const soak_row *featured = &rows[soak_random_int(&random, 0, count - 1)];
    draw_settings(&context, featured, &drawn->settings);
    draw_fixed_devices(&random, drawn);
    if (draw_is(drawn, "model", "../inputs/net.lk"))
        soak_model_draw(&random, drawn);
    drawn->tries_tpu = means->has_pjrt && soak_random_chance(&random, 0.03);
    drawn->attempt_count = (int)soak_random_int(&random, 1, SOAK_MAX_ATTEMPTS);
    for (int i = 0; i < drawn->attempt_count; i++)
        draw_attempt(&context, means, featured, i == drawn->attempt_count - 1, &drawn->attempts[i]);
}
