/* What the processes of --strategy parameter-server say to each other: structures behind a wire header (dist/wire.h),
 * and the frames that follow. Whoever changes one raises LK_WIRE_VERSION.
 *
 * The chief is asked by all: JOIN (workers: SEAT before), BEAT, TABLE; by workers: WORK, ASK, LEAVE. Servers are asked
 * by workers and the chief: PULL, PUSH. Each request has one reply, which repeats its number; all may be sent twice
 * without harm. */
#ifndef LK_TRAIN_PS_PROTOCOL_H
#define LK_TRAIN_PS_PROTOCOL_H

#include "dist/keys.h"
#include "dist/wire.h"

typedef enum ps_kind {
    PS_SEAT = 1, /* as PS_JOIN, of a worker that has not opened its devices */
    PS_SEATED,
    PS_JOIN,
    PS_WELCOME, /* to a worker */
    PS_SETUP,   /* to a server */
    PS_LATER,   /* to a server: the one before it may still be there; ask again */
    PS_REFUSED, /* frame 0: why */
    PS_BEAT,
    PS_PULSE, /* frame 0: why training failed */
    PS_TABLE,
    PS_SERVERS, /* frame 0: ps_server_place[servers] */
    PS_WORK,
    PS_TASK,
    PS_ASK,
    PS_ANSWER,
    PS_LEAVE,
    PS_FAREWELL,
    PS_PULL,
    PS_VARIABLES, /* frame 0: f32 parameters; 1: f32 running statistics; of an empty pull both are empty; 2: where it
                     was asked for, the optimiser's state, f32, each kind of as many elements as parameters */
    PS_PUSH,      /* frame 0: f32 gradients; frame 1: f64 sums of batch-norm; both empty where nothing is added */
    PS_PUSHED
} ps_kind;

typedef enum ps_role { PS_CHIEF, PS_WORKER, PS_SERVER } ps_role; /* as lk_cluster_role */

enum { PS_ADDRESS = 96 };

typedef struct ps_join {
    int32_t role;
    int32_t index;   /* of a server */
    int32_t devices; /* of a worker */
    int32_t has_snapshot;
    uint64_t nonce;           /* of the process: a message that comes twice is known by it */
    uint64_t run;             /* that the snapshot is of … */
    int64_t version;          /* … and how many updates it holds */
    char address[PS_ADDRESS]; /* where a server listens: "127.0.0.1:40000" */
    char host[64];            /* name of the machine */
} ps_join;                    /* frame 0: of a worker, what it is about to train, see agreement.c */

typedef struct ps_seated {
    int32_t first_core, reserved; /* cores of its machine that no other worker takes begin with it */
} ps_seated;

typedef struct ps_welcome {
    int64_t worker; /* its number, which no other worker ever has */
    int32_t servers, reserved;
    uint64_t run;
    int64_t max_staleness, shards;
} ps_welcome;

/* One part of a variable, in the order of the server's memory. */
typedef struct ps_part {
    int64_t count;
    int32_t axes; /* of the whole variable: LARS leaves those of one axis alone */
    int32_t is_whole;
} ps_part;

/* A batch-norm layer: sums f64 [2, channels], and running mean and variance of channels each. */
typedef struct ps_layer {
    int64_t channels, positions; /* positions: elements of a channel in one sample */
    double momentum;
} ps_layer;

typedef struct ps_setup {
    uint64_t run;
    int32_t incarnation, restores; /* restores: its snapshot is good; frames 2 to 4 are empty */
    int64_t batches, shards;       /* batches: of the whole training */
    int64_t updates;               /* that its optimiser has made before; 0: frame 4 is empty */
    int64_t max_staleness;
    int32_t parts, layers, optimizer, nesterov;
    double momentum, weight_decay, beta1, beta2, epsilon, trust, clip_norm;
    int64_t elements, statistics; /* f32 of its parameters with gaps, and of running statistics */
} ps_setup; /* frame 0: ps_part[parts]; 1: ps_layer[layers]; 2, 3, 4: parameters, running statistics and the
               optimiser's state, as PS_VARIABLES has them, to begin with */

typedef enum ps_state {
    PS_RUNNING,
    PS_ENDED,
    PS_FAILED,
    PS_FORGOTTEN /* to a worker that was lost, and whose seat somebody else has: it is to join again */
} ps_state;

typedef struct ps_beat {
    int64_t id;
    int32_t role, incarnation; /* incarnation: of a server */
    uint64_t run;
} ps_beat;

typedef struct ps_pulse {
    int32_t state, generation; /* generation: changes with the table of servers */
} ps_pulse;

typedef struct ps_empty {
    uint64_t run;
} ps_empty;

typedef struct ps_server_place {
    int32_t incarnation, is_there;
    char address[PS_ADDRESS];
    char key[LK_KEY_TEXT + 7];
} ps_server_place;

typedef struct ps_servers {
    int32_t generation, servers;
} ps_servers;

typedef enum ps_outcome {
    PS_NOTHING,    /* there was no hand-out before */
    PS_DONE,       /* every server has it */
    PS_SKIPPED,    /* the same, without an update: not finite */
    PS_NOT_FINITE, /* not pushed: training is to stop */
    PS_DROPPED     /* not pushed: it has become too stale, or somebody else's */
} ps_outcome;

/* Where a worker's time has gone, in seconds, since its first few steps: see ps_times.h. */
typedef struct ps_times {
    int64_t steps, samples;
    double seconds;            /* all but what it waited between epochs */
    double compute;            /* by the clock … */
    double computing, busiest; /* … and of a core: the mean of its devices, and the most that one of them had */
    double exchange;           /* pulling and pushing */
    double stale;              /* waiting, because of max_staleness, until others have pushed */
    double input;              /* waiting for a hand-out, and for its samples */
    double small, large;       /* the quickest pulls of nothing and of all variables; 0: there was none */
} ps_times;

/* A worker's report on its last hand-out, and the request for another. Where the answer is PS_FORGOTTEN the report has
 * not been read. */
typedef struct ps_work {
    int64_t worker;
    int32_t outcome, reserved;
    int64_t batch, first_shard, end_shard;
    int64_t staleness; /* most of all servers */
    int64_t repeated;  /* servers that had it already */
    int64_t samples;
    double loss, hits, top_k; /* sums over the samples */
    ps_times times;           /* so far */
    uint64_t run;
} ps_work;

typedef struct ps_task {
    int32_t state;   /* ps_state; a task where it is PS_RUNNING */
    int32_t granted; /* may be pushed without PS_ASK */
    int64_t batch;   /* since the beginning of training */
    int64_t epoch, index;
    int64_t first_shard, end_shard;
    int64_t samples; /* of the whole batch */
    double rate;
    double held_back, between; /* seconds that the request has waited because of max_staleness, and between epochs */
} ps_task;

typedef struct ps_ask {
    int64_t worker, batch;
    uint64_t run;
} ps_ask;

typedef struct ps_answer {
    int32_t granted, state;
} ps_answer;

typedef struct ps_pull {
    uint64_t run;
    int32_t is_empty;             /* of no variables: to see how long messages take, or … */
    int32_t is_timed;             /* … what updates have taken */
    int32_t with_state, reserved; /* with_state: the optimiser's too */
} ps_pull;

typedef struct ps_variables {
    int32_t incarnation, reserved;
    int64_t version; /* updates applied since the beginning of training */
    int64_t timed;   /* where that was asked for: updates since this process had applied a few … */
    double seconds;  /* … and the processor time that its device has taken since */
} ps_variables;

typedef struct ps_push {
    uint64_t run;
    int64_t batch, first_shard, end_shard;
    int32_t incarnation, is_skipped; /* incarnation and version: what the pull said */
    int64_t version;
    int64_t samples; /* of the whole batch */
    double rate;
} ps_push;

typedef enum ps_push_status { PS_APPLIED, PS_HELD, PS_REPEATED, PS_TOO_STALE } ps_push_status;

typedef struct ps_pushed {
    int32_t status, incarnation;
    int64_t staleness, version;
} ps_pushed;

#endif
