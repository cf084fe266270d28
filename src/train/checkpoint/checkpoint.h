/* The format of checkpoints: names and versions. lockstep/checkpoint.h lists the files of a checkpoint. */
#pragma once

#include "lockstep/checkpoint.h"

enum { LK_CHECKPOINT_VERSION = 2, LK_CHECKPOINT_NAME = 48 /* bytes of a checkpoint's name */ };

#define LK_MANIFEST_FORMAT "lockstep manifest"
#define LK_SPARE ".spare"            /* name of a folder whose files the next checkpoint overwrites */
#define LK_UNFINISHED ".unfinished-" /* prefix of a checkpoint's name while it is written or removed */
