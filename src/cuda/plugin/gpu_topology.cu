/* Finds out how GPUs are connected, which only NVML knows. NVML comes with the driver, and is loaded at the first
 * question. Its header is in a separate package, so the part used is declared here, after NVML's API reference. */
#include "cuda/plugin/gpu_plugin.h"

#include <cstdio>
#include <dlfcn.h>

enum { NVML_SUCCESS = 0, NVML_FEATURE_ENABLED = 1, NVML_P2P_CAPS_INDEX_NVLINK = 2, NVML_P2P_STATUS_OK = 0 };
enum { NVML_NVLINK_MAX_LINKS = 18 };
enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50
};

typedef void *nvmlDevice_t;

struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

struct nvml {
    int (*init)();
    int (*find)(const char *bus, nvmlDevice_t *device);
    int (*ancestor)(nvmlDevice_t a, nvmlDevice_t b, int *level);
    int (*peer_status)(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status);
    int (*link_state)(nvmlDevice_t device, unsigned link, int *is_active);
    int (*link_end)(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *end);
    bool is_there;
};

template <typename Function> static bool find_symbol(void *library, const char *name, Function *function)
{
    *function = (Function)dlsym(library, name);
    return *function != nullptr;
}

/* NVML is never unloaded, like the runtime. */
static nvml load_nvml()
{
    nvml n = {};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    n.is_there = library && find_symbol(library, "nvmlInit_v2", &n.init) &&
                 find_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &n.find) &&
                 find_symbol(library, "nvmlDeviceGetTopologyCommonAncestor", &n.ancestor) &&
                 find_symbol(library, "nvmlDeviceGetP2PStatus", &n.peer_status) &&
                 find_symbol(library, "nvmlDeviceGetNvLinkState", &n.link_state) &&
                 find_symbol(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &n.link_end) && n.init() == NVML_SUCCESS;
    return n;
}

static bool ends_at(const nvmlPciInfo_t &end, const char *bus)
{
    unsigned domain, number, device;
    return sscanf(bus, "%x:%x:%x", &domain, &number, &device) == 3 && end.domain == domain && end.bus == number &&
           end.device == device;
}

/* The number of NVLinks that lead to the other GPU or, if all lead to switches, of those that are up. */
static int count_links(const nvml &n, nvmlDevice_t device, const char *other)
{
    int up = 0, direct = 0;
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++) {
        int is_active = 0;
        nvmlPciInfo_t end = {};
        if (n.link_state(device, link, &is_active) != NVML_SUCCESS || is_active != NVML_FEATURE_ENABLED)
            continue;
        up++;
        direct += n.link_end(device, link, &end) == NVML_SUCCESS && ends_at(end, other);
    }
    return direct ? direct : up;
}

static lk_gpu_path_kind pci_path(const nvml &n, nvmlDevice_t a, nvmlDevice_t b)
{
    int level = -1;
    if (n.ancestor(a, b, &level) != NVML_SUCCESS)
        return LK_GPU_PATH_UNKNOWN;
    switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
        return LK_GPU_PATH_BOARD;
    case NVML_TOPOLOGY_SINGLE:
        return LK_GPU_PATH_SWITCH;
    case NVML_TOPOLOGY_MULTIPLE:
        return LK_GPU_PATH_SWITCHES;
    case NVML_TOPOLOGY_HOSTBRIDGE:
        return LK_GPU_PATH_BRIDGE;
    case NVML_TOPOLOGY_NODE:
        return LK_GPU_PATH_NODE;
    case NVML_TOPOLOGY_SYSTEM:
        return LK_GPU_PATH_SYSTEM;
    default:
        return LK_GPU_PATH_UNKNOWN;
    }
}

lk_gpu_path lk__gpu_path(const char *bus, const char *other)
{
    static const nvml n = load_nvml();
    nvmlDevice_t a, b;
    int status = -1;
    if (!n.is_there || n.find(bus, &a) != NVML_SUCCESS || n.find(other, &b) != NVML_SUCCESS)
        return {};
    if (n.peer_status(a, b, NVML_P2P_CAPS_INDEX_NVLINK, &status) == NVML_SUCCESS && status == NVML_P2P_STATUS_OK)
        return {LK_GPU_PATH_NVLINK, count_links(n, a, other)};
    return {pci_path(n, a, b), 0};
}
