/* Devices. A device executes operators in the order in which they were pushed, asynchronously to the caller and to
 * other devices. A CPU device is one core: a worker thread pinned inside the process's set of CPUs. A CUDA device is a
 * stream of a GPU, and a thread that gives it work. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_device lk_device;

#define LK_MAX_DEVICES 256

/* Opens every device that `spec` names, in order, one reference each, into devices[0 … *count).
 * spec: items joined by commas; an item is KIND, KIND:INDEX, NxKIND (KIND:0 … KIND:N-1), NxKIND:INDEX (N logical
 * devices on one physical one) or N (that many of the best kind present: cuda, else cpu). KIND: cpu, ref (plain C
 * kernels on the same cores, for tests) or cuda (a GPU, by a plug-in that is loaded when one is asked for). More CPU
 * devices than cores is allowed; they share cores, and a warning is logged. Errors: LK_ERR_ARGUMENT (malformed, unknown
 * kind, more than `capacity`), LK_ERR_MEMORY, LK_ERR_DEVICE (no plug-in, no driver, no such GPU). */
LK_API lk_status lk_devices_open(const char *spec, lk_device **devices, int capacity, int *count);

/* How many devices `spec` names, without opening any. Errors: LK_ERR_ARGUMENT. */
LK_API lk_status lk_devices_count(const char *spec, int *count);

/* The device of a `spec` that names one, or NULL. */
LK_API lk_device *lk_device_open(const char *spec);

LK_API lk_device *lk_device_retain(lk_device *device);

/* The last release waits for what was pushed, then ends the worker thread. Tensors that are still held can be read
 * afterwards, but nothing more can be pushed to the device. NULL is fine. */
LK_API void lk_device_release(lk_device *device);
LK_API void lk_devices_release(lk_device *const *devices, int count);

/* "cpu:0". Valid as long as the device. */
LK_API const char *lk_device_name(const lk_device *device);

/* "cpu". Static. */
LK_API const char *lk_device_kind(const lk_device *device);

/* Physical devices of a kind that this process may use: for cpu, the cores in its CPU set. 0 for an unknown kind. */
LK_API int lk_device_available(const char *kind);

/* One line about physical device `index` of a kind: "CPU 3, core 3, package 0, NUMA node 0". Written to text[0 … size).
 */
LK_API lk_status lk_device_describe(const char *kind, int index, char *text, int size);

/* One line about what devices of a kind run on: "driver 13.0, CUDA 13.0, cuBLASLt 13.0.2, cuDNN 9.13.0"; "built in" for
 * cpu and ref. It says nothing of whether there is a device. Errors: LK_ERR_ARGUMENT (unknown kind), LK_ERR_DEVICE
 * (what devices would run on is not there: the message says what). */
LK_API lk_status lk_device_describe_kind(const char *kind, char *text, int size);

/* Which algorithms its kernels may use. */
typedef enum lk_algorithms {
    LK_ALGORITHMS_FAST,  /* the fastest for operator, shape, dtype and processor; the default */
    LK_ALGORITHMS_DIRECT /* only sums of products as they are written: nothing that rounds worse, as Winograd does */
} lk_algorithms;

/* For what is pushed to the device from then on; in the thread that pushes it. */
LK_API void lk_device_set_algorithms(lk_device *device, lk_algorithms algorithms);

/* Whether f32 products of matrices and convolutions may round their operands to TF32, 10 bits of mantissa in place of
 * 23, as tensor cores of GPUs take them; sums stay f32. For what is pushed to the device from then on; in the thread
 * that pushes it. Not unless asked for. Errors: LK_ERR_UNSUPPORTED (another kind of device than cuda). */
LK_API lk_status lk_device_set_tf32(lk_device *device, bool allowed);

/* Choices that override the built-in ones: see tuning.h. */
typedef struct lk_tuning lk_tuning;

/* The same with a tuning, whose problems then run on what it says, also where `algorithms` would not allow that; NULL:
 * none. It is kept as long as the device, and must not change any more. Errors: LK_ERR_ARGUMENT (for another kind of
 * device), LK_ERR_MEMORY. */
LK_API lk_status lk_device_set_tuning(lk_device *device, lk_tuning *tuning);

/* Waits until everything pushed to the device so far has run. Gives back the first asynchronous error on any device
 * that was not reported yet. */
LK_API lk_status lk_device_sync(lk_device *device);

/* The same for every open device. */
LK_API lk_status lk_wait_all(void);

/* Bytes of device memory held by tensors now, and the most there ever were. */
LK_API void lk_device_memory(const lk_device *device, int64_t *now, int64_t *peak);

/* Floating-point operations of all that was pushed to the device so far, as the operators count them (see ops.h). */
LK_API double lk_device_flops(const lk_device *device);

/* Processor time that the device's thread has used so far, after what was pushed. Blocks. Errors: those of
 * lk_device_sync, LK_ERR_STATE (the device was released). */
LK_API lk_status lk_device_processor_seconds(lk_device *device, double *seconds);

/* The kinds of device that this build has, best first; NULL past the end. */
LK_API const char *lk_device_kind_at(int index);

/* One implementation that a library below has chosen: "conv2d", "f32 32x1x28x28 20x1x3x3 …", "jit:avx2". The texts are
 * valid during the call. */
typedef void (*lk_implementation_fn)(void *user, const char *op, const char *problem, const char *implementation);

/* Calls visit(user, …) for each problem that the device has met so far, in the order of the texts, in the calling
 * thread; waits for what was pushed. The same operators on the same shapes give the same list on every device of a
 * kind. Errors: those of lk_device_sync; LK_ERR_MEMORY. */
LK_API lk_status lk_device_implementations(lk_device *device, lk_implementation_fn visit, void *user);

#ifdef __cplusplus
}
#endif

#endif
