/* An emulated libnvidia-ml.so.1, for a machine whose GPUs 0 and 1 are connected by two NVLinks, and whose GPU 2 is on
 * another socket. It does not know how GPU 3 is connected. */
#include <cstdio>
#include <cstring>

#define NVML extern "C" __attribute__((visibility("default"))) int

typedef const char *nvmlDevice_t; /* "0", "1" … */

struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

NVML nvmlInit_v2()
{
    return 0;
}

NVML nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    unsigned domain, number, slot;
    if (sscanf(bus, "%x:%x:%x", &domain, &number, &slot) != 3 || domain || slot || number > 3)
        return 6; /* not found */
    *device = names[number];
    return 0;
}

static bool is_linked(nvmlDevice_t device)
{
    return *device == '0' || *device == '1';
}

NVML nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status)
{
    *status = capability == 2 && is_linked(a) && is_linked(b) ? 0 : 4;
    return 0;
}

NVML nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, int *level)
{
    *level = 50;
    return *a == '3' || *b == '3' ? 3 : 0; /* not supported */
}

/* Each GPU has four links, of which one is down and one leads to another device. */
NVML nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, int *is_active)
{
    *is_active = link != 1;
    return is_linked(device) && link < 4 ? 0 : 2;
}

NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *end)
{
    memset(end, 0, sizeof *end);
    end->bus = link == 3 ? 77 : *device == '0' ? 1 : 0;
    return 0;
}
