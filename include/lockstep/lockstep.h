/* All public headers of Lockstep.
 *
 * Programs that train a model need train_config.h, trainer.h and callbacks.h; checkpoint.h and predict.h use the
 * trained network. Programs with their own training loop also need device.h, data.h, nn.h, dist.h and replicas.h. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include "lockstep/autograd.h"
#include "lockstep/build.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/compile.h"
#include "lockstep/data.h"
#include "lockstep/device.h"
#include "lockstep/dist.h"
#include "lockstep/export.h"
#include "lockstep/heartbeat.h"
#include "lockstep/image.h"
#include "lockstep/log.h"
#include "lockstep/lr_find.h"
#include "lockstep/memory.h"
#include "lockstep/nn.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"
#include "lockstep/options.h"
#include "lockstep/parameter_server.h"
#include "lockstep/pjrt.h"
#include "lockstep/plot.h"
#include "lockstep/predict.h"
#include "lockstep/program.h"
#include "lockstep/random.h"
#include "lockstep/record.h"
#include "lockstep/runs.h"
#include "lockstep/scaling.h"
#include "lockstep/serve.h"
#include "lockstep/status.h"
#include "lockstep/study.h"
#include "lockstep/tensor.h"
#include "lockstep/trace.h"
#include "lockstep/train.h"
#include "lockstep/tune.h"
#include "lockstep/tuning.h"

#endif
