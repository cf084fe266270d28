/* A case: settings that decide the bits, and attempts to train with them, each in its own way and disturbed in its own
 * way. The last attempt is not disturbed. */
#pragma once

#include "lockstep/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SOAK_VALUE_BYTES = 160, SOAK_MAX_SETTINGS = 112, SOAK_MAX_ATTEMPTS = 4, SOAK_MAX_DISTURBANCES = 2 };

/* A row of an option table with the value that the case gives it. */
typedef struct soak_setting {
    const lk_option *row;
    bool is_launch; /* an option of `lockstep launch`, not of train */
    char value[SOAK_VALUE_BYTES];
} soak_setting;

typedef struct soak_settings {
    int count;
    soak_setting at[SOAK_MAX_SETTINGS];
} soak_settings;

/* How the processes of an attempt are started. */
typedef enum soak_shape {
    SOAK_LOCAL,   /* one process */
    SOAK_RANKS,   /* launch -n */
    SOAK_HOSTS,   /* launch --hosts, through mpirun */
    SOAK_SERVERS, /* launch --workers */
    SOAK_ROLES,   /* chief, servers and workers of parameter-server, each started by itself */
    SOAK_SHAPES
} soak_shape;

typedef enum soak_disturbance_kind {
    SOAK_KILL,      /* SIGKILL for a process */
    SOAK_LOSE,      /* SIGKILL for a process that the others can replace or do without */
    SOAK_INTERRUPT, /* SIGINT or SIGTERM for the first process */
    SOAK_PAUSE,     /* SIGSTOP for a process, SIGCONT soon after */
    SOAK_DISK,      /* a disk that is nearly full, or a limit on the size of files */
    SOAK_MEMORY,    /* RLIMIT_AS */
    SOAK_CLOCK,     /* the time of day jumps */
    SOAK_PIPE,      /* standard output is a pipe that nobody reads any more, or a full device */
    SOAK_DAMAGE,    /* before the attempt a file of the newest checkpoint or of the records is damaged */
    SOAK_DISTURBANCE_KINDS
} soak_disturbance_kind;

typedef struct soak_disturbance {
    soak_disturbance_kind kind;
    double moment;   /* as a share of the reference's time */
    uint64_t choice; /* which process, signal, file, limit */
} soak_disturbance;

typedef struct soak_attempt {
    soak_shape shape;
    int processes; /* ranks or workers */
    int devices;   /* of each */
    int servers;
    bool is_synchronous; /* LOCKSTEP_ENGINE=sync */
    bool is_slow;        /* LOCKSTEP_CHECKPOINT_SLOW */
    bool is_overriding;  /* --override, although nothing differs */
    bool has_keys;       /* processes of parameter-server have keys */
    bool has_cluster;    /* workers read a description of the cluster */
    soak_settings settings;
    int disturbance_count;
    soak_disturbance disturbances[SOAK_MAX_DISTURBANCES];
} soak_attempt;

typedef struct soak_case {
    uint64_t seed;
    const char *device_kind; /* "cpu", "ref" or "cuda:0" */
    bool has_batch_norm;     /* the network */
    int fixed_devices;       /* all attempts and the reference have so many; 0: the bits depend on no number */
    bool tries_tpu;          /* before the attempts, which is refused */
    char model[4096];        /* the text of the model file; "": none */
    soak_settings settings;  /* of the reference and all attempts */
    int attempt_count;
    soak_attempt attempts[SOAK_MAX_ATTEMPTS];
} soak_case;

extern const char *const soak_disturbance_names[SOAK_DISTURBANCE_KINDS];

/* The value of an option that the case gives to all; NULL: not given. */
const char *soak_settings_value(const soak_settings *settings, const char *name);

void soak_settings_add(soak_settings *settings, const lk_option *row, bool is_launch, const char *value);

void soak_settings_remove(soak_settings *settings, int index);

/* Returns whether the attempt runs processes of --strategy parameter-server. */
bool soak_attempt_has_servers(const soak_attempt *attempt);

bool soak_attempt_has(const soak_attempt *attempt, soak_disturbance_kind kind);
