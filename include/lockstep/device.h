/* Devices. A device runs operators in the order in which they were pushed, asynchronously to the caller and to other
 * devices. A CPU device is one core: a worker thread that is pinned to a CPU of the process's CPU set. A CUDA device is
 * a stream of a GPU, and a thread that gives it work.
 *
 *     lk_device *devices[2];
 *     int n;
 *     lk_devices_open("2xcpu", devices, 2, &n);
 *     …
 *     lk_devices_release(devices, n);
 *
 * A device does not survive fork: in the child, operators on a device of the parent fail with LK_ERR_STATE. The child
 * may open CPU devices of its own, if the parent had no work in flight (lk_wait_all) and no other thread in a function
 * of the library: a lock that is held at a fork stays held in the child. */
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

/* Opens the devices that `spec` names, in order, into devices[0 … *count), with one reference each. spec is a list of
 * items joined by commas:
 *   KIND         KIND:0
 *   KIND:INDEX   one device
 *   NxKIND       KIND:0 … KIND:N-1
 *   NxKIND:INDEX N logical devices on one physical device
 *   N            that many of the best kind present: cuda, else cpu
 * KIND is cpu, ref (the same cores with plain C kernels, for tests), cuda (a GPU; its plug-in is loaded on first use),
 * or pjrt or tpu (lockstep/pjrt.h). If there are more CPU devices than cores they share cores, and a warning is logged.
 * Errors: LK_ERR_ARGUMENT (malformed, unknown kind, more than `capacity` devices), LK_ERR_MEMORY, LK_ERR_DEVICE (no
 * plug-in, driver or such GPU). */
LK_API lk_status lk_devices_open(const char *spec, lk_device **devices, int capacity, int *count);

/* The kind that N devices without a kind have: "cuda", "cpu"; static. NULL: no device is present. */
LK_API const char *lk_devices_best_kind(void);

/* Sets *count to the number of devices that `spec` names, without opening any. Errors: LK_ERR_ARGUMENT. */
LK_API lk_status lk_devices_count(const char *spec, int *count);

/* Opens the device of a `spec` that names only one; gives one reference. NULL on failure, with errors as above. */
LK_API lk_device *lk_device_open(const char *spec);

LK_API lk_device *lk_device_retain(lk_device *device);

/* Releases a reference. The last release waits until everything pushed has run, then ends the device's thread. Tensors
 * that are still held can be read afterwards, but nothing more can be pushed to the device. NULL is fine. */
LK_API void lk_device_release(lk_device *device);
LK_API void lk_devices_release(lk_device *const *devices, int count);

/* "cpu:0". Valid as long as the device. */
LK_API const char *lk_device_name(const lk_device *device);

/* "cpu". Static. */
LK_API const char *lk_device_kind(const lk_device *device);

/* The number of physical devices of a kind that this process may use; for cpu, the CPUs of its CPU set. 0 for an
 * unknown kind. */
LK_API int lk_device_available(const char *kind);

/* Writes a line about physical device `index` of a kind to text[0 … size): "CPU 3, core 3, package 0, NUMA node 0".
 * Errors: LK_ERR_ARGUMENT, LK_ERR_DEVICE. */
LK_API lk_status lk_device_describe(const char *kind, int index, char *text, int size);

/* Writes a line about the software that devices of a kind run on: "driver 13.0, CUDA 13.0, cuBLASLt 13.0.2,
 * cuDNN 9.13.0"; "built in" for cpu and ref. It succeeds even if there is no such device. Errors: LK_ERR_ARGUMENT
 * (unknown kind), LK_ERR_DEVICE (some of it is missing; the message says what). */
LK_API lk_status lk_device_describe_kind(const char *kind, char *text, int size);

/* The algorithms that kernels may use. */
typedef enum lk_algorithms {
    LK_ALGORITHMS_FAST,  /* the fastest for the operator, shape, dtype and processor; the default */
    LK_ALGORITHMS_DIRECT /* only plain sums of products: none that rounds worse, as Winograd's convolution does */
} lk_algorithms;

/* Sets them for operators that are pushed later. Call it in the thread that pushes. */
LK_API void lk_device_set_algorithms(lk_device *device, lk_algorithms algorithms);

/* Allows f32 matrix products and convolutions to round their operands to TF32, with 10 bits of mantissa instead of 23,
 * for the tensor cores of GPUs; sums stay f32. It holds for operators that are pushed later, and is off by default.
 * Call it in the thread that pushes. Errors: LK_ERR_UNSUPPORTED (not a cuda device). */
LK_API lk_status lk_device_set_tf32(lk_device *device, bool allowed);

/* Choices of implementations that override the built-in ones: see lockstep/tuning.h. */
typedef struct lk_tuning lk_tuning;

/* Uses a tuning for operators that are pushed later: problems in it run on the implementation that it names, even one
 * that `algorithms` excludes. NULL: none. The device keeps a reference, and the tuning must not change any more. Call
 * it in the thread that pushes. Errors: LK_ERR_ARGUMENT (a tuning for another kind of device), LK_ERR_MEMORY. */
LK_API lk_status lk_device_set_tuning(lk_device *device, lk_tuning *tuning);

/* Waits until everything pushed to the device so far has run. Gives the first asynchronous error on any device that was
 * not reported yet. */
LK_API lk_status lk_device_sync(lk_device *device);

/* Waits likewise for all open devices. */
LK_API lk_status lk_wait_all(void);

/* Sets *now to the bytes of device memory that tensors hold, and *peak to the most they have ever held. */
LK_API void lk_device_memory(const lk_device *device, int64_t *now, int64_t *peak);

/* Floating-point operations of all operators pushed to the device so far, as they count them (see lockstep/ops.h). */
LK_API double lk_device_flops(const lk_device *device);

/* Waits until everything pushed has run, then sets *seconds to the processor time that the device's thread has used so
 * far. Errors: those of lk_device_sync, LK_ERR_STATE (the device was released). */
LK_API lk_status lk_device_processor_seconds(lk_device *device, double *seconds);

/* The kinds of device that this build has, best first; NULL past the end. */
LK_API const char *lk_device_kind_at(int index);

/* Is told of an implementation that was chosen for a problem: "conv2d", "f32 32x1x28x28 20x1x3x3 …", "jit:avx2". The
 * texts are valid during the call. */
typedef void (*lk_implementation_fn)(void *user, const char *op, const char *problem, const char *implementation);

/* Waits until everything pushed has run, then calls visit(user, …) in the calling thread for each problem that the
 * device has met so far, in the order of the texts. The same operators on the same shapes give the same list on every
 * device of a kind. Errors: those of lk_device_sync; LK_ERR_MEMORY. */
LK_API lk_status lk_device_implementations(lk_device *device, lk_implementation_fn visit, void *user);

#ifdef __cplusplus
}
#endif

#endif
