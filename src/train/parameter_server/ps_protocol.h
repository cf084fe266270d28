/* The messages between the processes of --strategy parameter-server: structures that follow a wire header
 * (dist/service/wire.h), and further frames. Raise LK_WIRE_VERSION when one changes.
 *
 * All processes ask the chief: JOIN (workers ask for a SEAT first), BEAT, TABLE; workers also WORK, ASK, LEAVE. Workers
 * and the chief ask servers: PULL, PUSH. Each request has one reply, which repeats its number. Every request may be
 * sent twice without harm. */
#pragma once

#include "dist/service/keys.h"
#include "dist/service/wire.h"

typedef enum lk_ps_kind {
    LK_PS_SEAT = 1, /* as LK_PS_JOIN, from a worker that has not opened its devices yet; see ps_seats.h */
    LK_PS_SEATED,
    LK_PS_JOIN,
    LK_PS_WELCOME, /* to a worker */
    LK_PS_SETUP,   /* to a server */
    LK_PS_LATER,   /* to a server: its predecessor may still be alive; ask again */
    LK_PS_REFUSED, /* frame 0: why */
    LK_PS_OVER,    /* to a process that joins: training has ended, and nothing is left to do */
    LK_PS_BEAT,    /* a heartbeat */
    LK_PS_PULSE,   /* reply to a heartbeat; frame 0: why training failed */
    LK_PS_TABLE,   /* asks where the servers are */
    LK_PS_SERVERS, /* frame 0: lk_ps_server_location[servers] */
    LK_PS_WORK,    /* a worker's report on its hand-out, and the request for another */
    LK_PS_TASK,
    LK_PS_ASK, /* a worker asks whether it may push */
    LK_PS_ANSWER,
    LK_PS_LEAVE, /* a worker leaves */
    LK_PS_FAREWELL,
    LK_PS_PULL,
    LK_PS_VARIABLES, /* frame 0: f32 parameters; 1: f32 running statistics; both are empty for an empty pull; 2: the
                        optimizer's state if asked for, f32, each kind with as many elements as the parameters */
    LK_PS_PUSH,      /* frame 0: f32 gradients; 1: f64 sums of batch-norm; both are empty if nothing is added */
    LK_PS_PUSHED
} lk_ps_kind;

typedef enum lk_ps_role { LK_PS_CHIEF, LK_PS_WORKER, LK_PS_SERVER } lk_ps_role; /* as lk_cluster_role */

enum { LK_PS_ADDRESS = 96 };

typedef struct lk_ps_join {
    int32_t role;
    int32_t index;   /* of a server */
    int32_t devices; /* of a worker */
    int32_t has_snapshot;
    uint64_t nonce;              /* identifies the process, so that a repeated message is recognized */
    uint64_t run;                /* the training of its snapshot */
    int64_t version;             /* updates in its snapshot */
    char address[LK_PS_ADDRESS]; /* where a server listens: "127.0.0.1:40000" */
    char host[64];               /* name of the machine */
} lk_ps_join;                    /* frame 0, from a worker: its settings, see agreement.c */

typedef struct lk_ps_seated {
    int32_t first_core, reserved; /* the first of the worker's cores on its machine */
} lk_ps_seated;

typedef struct lk_ps_welcome {
    int64_t worker; /* its number, which no other worker ever gets */
    int32_t servers, reserved;
    uint64_t run;
    int64_t max_staleness, shards;
} lk_ps_welcome;

/* One part of a variable, in the order of the server's memory. */
typedef struct lk_ps_part {
    int64_t count;
    int32_t axes; /* of the whole variable: LARS does not adapt the rate of variables with one axis */
    int32_t is_whole;
} lk_ps_part;

/* A batch-norm layer: sums f64 [2, channels], and running mean and variance of channels each. */
typedef struct lk_ps_layer {
    int64_t channels, positions; /* positions: elements of a channel in one sample */
    double momentum;
} lk_ps_layer;

typedef struct lk_ps_setup {
    uint64_t run;
    int32_t incarnation, restores; /* restores: continue from the snapshot; frames 2 to 4 are empty */
    int64_t batches, shards;       /* batches: of the whole training */
    int64_t updates;               /* updates its optimizer has already made; 0: frame 4 is empty */
    int64_t max_staleness;
    int32_t parts, layers, optimizer, nesterov;
    double momentum, weight_decay, beta1, beta2, epsilon, trust, clip_norm;
    int64_t elements, statistics; /* f32 elements of its parameters with gaps, and of running statistics */
} lk_ps_setup; /* frame 0: lk_ps_part[parts]; 1: lk_ps_layer[layers]; 2, 3, 4: initial parameters, running statistics
                  and optimizer state, as in LK_PS_VARIABLES */

typedef enum lk_ps_state {
    LK_PS_RUNNING,
    LK_PS_ENDED,
    LK_PS_FAILED,
    LK_PS_FORGOTTEN /* to a worker that was lost and whose seat was given away: it must join again */
} lk_ps_state;

typedef struct lk_ps_beat {
    int64_t id;
    int32_t role, incarnation; /* incarnation: of a server */
    uint64_t run;
} lk_ps_beat;

typedef struct lk_ps_pulse {
    int32_t state, generation; /* generation: changes when the table of servers does */
} lk_ps_pulse;

typedef struct lk_ps_empty {
    uint64_t run;
} lk_ps_empty;

typedef struct lk_ps_server_location {
    int32_t incarnation, is_there;
    char address[LK_PS_ADDRESS];
    char key[LK_KEY_TEXT + 7];
} lk_ps_server_location;

typedef struct lk_ps_servers {
    int32_t generation, servers;
} lk_ps_servers;

typedef enum lk_ps_outcome {
    LK_PS_NOTHING,    /* there was no previous hand-out */
    LK_PS_DONE,       /* every server has applied it */
    LK_PS_SKIPPED,    /* the same without an update: not finite */
    LK_PS_NOT_FINITE, /* not pushed: training must stop */
    LK_PS_DROPPED,    /* not pushed: it is too stale, or now belongs to another worker */
    LK_PS_TOO_LARGE   /* not pushed: the sum with other nodes of the batch may not be finite */
} lk_ps_outcome;

/* The times of a worker, in seconds, without its first few steps: see ps_times.h. */
typedef struct lk_ps_times {
    int64_t steps, samples;
    double seconds;            /* total, without the waits between epochs */
    double compute;            /* wall-clock time of computing */
    double computing, busiest; /* core time of computing: the mean of its devices, and the most of any device */
    double exchange;           /* pulling and pushing */
    double stale;              /* waiting for others to push, because of max_staleness */
    double input;              /* waiting for a hand-out and its samples */
    double small, large;       /* the fastest pull of nothing and of all variables; 0: none so far */
} lk_ps_times;

/* A worker's report on its last hand-out, and the request for another. The report has not been read if the answer is
 * LK_PS_FORGOTTEN. */
typedef struct lk_ps_work {
    int64_t worker;
    int32_t outcome, reserved;
    int64_t batch, first_shard, end_shard;
    int64_t staleness; /* most of all servers */
    int64_t repeated;  /* servers that already had the push */
    int64_t samples;
    double loss, hits, top_k; /* sums over the samples */
    lk_ps_times times;        /* so far */
    uint64_t run;
} lk_ps_work;

typedef struct lk_ps_task {
    int32_t state;   /* lk_ps_state; there is a task only if it is LK_PS_RUNNING */
    int32_t granted; /* may push without LK_PS_ASK */
    int64_t batch;   /* since the beginning of training */
    int64_t epoch, index;
    int64_t first_shard, end_shard;
    int64_t samples; /* of the whole batch */
    double rate;
    double held_back, between; /* seconds that the request waited because of max_staleness, and between epochs */
} lk_ps_task;

typedef struct lk_ps_ask {
    int64_t worker, batch;
    uint64_t run;
} lk_ps_ask;

typedef struct lk_ps_answer {
    int32_t granted, state;
} lk_ps_answer;

typedef struct lk_ps_pull {
    uint64_t run;
    int64_t batch;                /* the batch that is to be computed from the variables; -1: none */
    int32_t is_empty;             /* no variables, only to time the messages … */
    int32_t is_timed;             /* … or to ask how long updates took */
    int32_t with_state, reserved; /* with_state: also the optimizer's state */
} lk_ps_pull;

typedef struct lk_ps_variables {
    int32_t incarnation, reserved;
    int64_t version; /* updates applied since the beginning of training */
    int64_t timed;   /* if is_timed: updates since the first few of this process … */
    double seconds;  /* … and the processor time that they took */
} lk_ps_variables;

typedef struct lk_ps_push {
    uint64_t run;
    int64_t batch, first_shard, end_shard;
    int32_t incarnation, is_skipped; /* incarnation and version: from the pull */
    int64_t version;
    int64_t samples; /* of the whole batch */
    double rate;
} lk_ps_push;

typedef enum lk_ps_push_status { LK_PS_APPLIED, LK_PS_HELD, LK_PS_REPEATED, LK_PS_TOO_STALE } lk_ps_push_status;

typedef struct lk_ps_pushed {
    int32_t status, incarnation;
    int64_t staleness, version;
} lk_ps_pushed;
