/* The folders of a trial:
 *
 *     ROOT/inputs      model file and data
 *     ROOT/reference   where the reference runs
 *     ROOT/trial       where the attempts run; trial/disk, a file system of its own if there can be one, has
 * checkpoints and records ROOT/home, tmp   $HOME and $TMPDIR of all of them
 *
 * With enough rights this program has a namespace of mounts, with an empty /dev/shm. */
#pragma once

#include "soak_random.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct soak_place {
    char root[256];
} soak_place;

/* Called once, before anything else. */
void soak_place_isolate(void);

/* Returns whether a disk can be made full. */
bool soak_place_has_disks(void);

bool soak_place_make(soak_place *place);
void soak_place_remove(const soak_place *place);

/* Gives trial/disk so many bytes more than are in use, or plenty if `bytes` is 0. */
void soak_place_limit(const soak_place *place, long long bytes);

/* Names the first thing that a trial has left behind. after_kill: what a killed process cannot remove is allowed, but
 * removed. Returns false if there is none. */
bool soak_place_find_left(const soak_place *place, bool after_kill, bool has_ended, char *text, size_t size);

/* The path of the newest checkpoint below trial/disk. Returns the number of checkpoints. */
int soak_place_newest(const soak_place *place, const char *folder, char *path, size_t size);

/* Damages a file of the folder: another byte, fewer bytes, or no file. Says what was done. */
void soak_place_damage(const char *folder, soak_random *random, char *text, size_t size);

/* Removes a folder with all that is in it. */
void soak_place_clear(const char *path);
