/* Includes all headers about training: configure, train, verify, or write the loop by hand. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/replicas.h"
#include "lockstep/train_config.h"
#include "lockstep/trainer.h"
#include "lockstep/verify.h"

#endif
