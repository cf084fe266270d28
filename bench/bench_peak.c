/* Measures the peak of a core and the memory of a process with a device; prints one JSON object.
 *
 * flops: floating-point operations per second of f32 multiply-adds in one core's vectors. start_bytes: memory of the
 * process with the library loaded and a device open, before anything else. */
#include <lockstep/lockstep.h>

#include <stdio.h>

/* Reads VmRSS from /proc/self/status. */
static double resident_bytes(void)
{
    char line[256];
    double kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %lf", &kilobytes) == 1)
            break;
    if (status)
        fclose(status);
    return 1024 * kilobytes;
}

int main(void)
{
    double flops = 0, bytes = 0;
    lk_device *device = lk_device_open("cpu");
    lk_status status = device ? lk_device_sync(device) : lk_error_status();
    if (status == LK_OK) {
        bytes = resident_bytes();
        status = lk_device_measure_peak(device, LK_F32, &flops);
    }
    lk_device_release(device);
    if (status != LK_OK) {
        fprintf(stderr, "bench_peak: %s\n", lk_error_message());
        return 1;
    }
    printf("{\"flops\": %.0f, \"start_bytes\": %.0f}\n", flops, bytes);
    return 0;
}
