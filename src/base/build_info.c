/* lk_build_*: the version of the library, its compiler, and the libraries that it was built with. */
#include "lockstep/build.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#ifdef LK_HAVE_ONEDNN
#define ONEDNN_STATE true, LK_ONEDNN_VERSION
#else
#define ONEDNN_STATE false, ""
#endif

#ifdef LK_HAVE_HWLOC
#define HWLOC_STATE true, LK_HWLOC_VERSION
#else
#define HWLOC_STATE false, ""
#endif

#ifdef LK_HAVE_CURL
#define CURL_STATE true, LK_CURL_VERSION
#else
#define CURL_STATE false, ""
#endif

#ifdef LK_HAVE_CAIRO
#define CAIRO_STATE true, LK_CAIRO_VERSION
#else
#define CAIRO_STATE false, ""
#endif

#ifdef LK_HAVE_PNG
#define PNG_STATE true, LK_PNG_VERSION
#else
#define PNG_STATE false, ""
#endif

#ifdef LK_HAVE_JPEG
#define JPEG_STATE true, LK_JPEG_VERSION
#else
#define JPEG_STATE false, ""
#endif

#ifdef LK_HAVE_ZMQ
#define ZMQ_STATE true, LK_ZMQ_VERSION
#else
#define ZMQ_STATE false, ""
#endif

#ifdef LK_HAVE_MICROHTTPD
#define MICROHTTPD_STATE true, LK_MICROHTTPD_VERSION
#else
#define MICROHTTPD_STATE false, ""
#endif

#define TEXT_OF(token) #token
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
#if defined(__clang__)
#define COMPILER "clang " VERSION_TEXT(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define COMPILER "gcc " VERSION_TEXT(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#endif

static char xxhash_version[32];
static pthread_once_t versions_asked = PTHREAD_ONCE_INIT;

enum { ZLIB, XXHASH, JANSSON };

static lk_component components[] = {
    [ZLIB] = {"zlib", true, true, "", "reads compressed data sets", "zlib1g-dev"},
    [XXHASH] = {"xxHash", true, true, "", "digests and the keys of random streams", "libxxhash-dev"},
    [JANSSON] = {"jansson", true, true, "", "writes the JSON of studies, reads descriptions of clusters",
                 "libjansson-dev"},
    {"oneDNN", false, ONEDNN_STATE, "fast CPU kernels; without it plain C kernels run", "libdnnl-dev"},
    {"hwloc", false, HWLOC_STATE, "places devices on physical cores; without it on processors in their numbers' order",
     "libhwloc-dev"},
    {"libcurl", false, CURL_STATE, "fetches data sets; without it they must be on disk", "libcurl4-openssl-dev"},
    {"libcairo", false, CAIRO_STATE, "draws PNG pictures; without it charts are SVG only", "libcairo2-dev"},
    {"libpng", false, PNG_STATE, "reads PNG pictures; without it there are JPEG, PGM and PPM", "libpng-dev"},
    {"libjpeg", false, JPEG_STATE, "reads JPEG pictures; without it there are PNG, PGM and PPM", "libjpeg-dev"},
    {"ZeroMQ", false, ZMQ_STATE,
     "carries the messages of --strategy parameter-server and of TF_CONFIG; without it both are missing",
     "libzmq3-dev"},
    {"libmicrohttpd", false, MICROHTTPD_STATE,
     "shows runs while they train (lockstep serve); without it there is no server", "libmicrohttpd-dev"},
};

static void build_info_ask_versions(void)
{
    unsigned number = XXH_versionNumber();
    snprintf(xxhash_version, sizeof xxhash_version, "%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
    components[ZLIB].version = zlibVersion();
    components[XXHASH].version = xxhash_version;
    components[JANSSON].version = jansson_version_str();
}

const lk_component *lk_build_components(size_t *count)
{
    pthread_once(&versions_asked, build_info_ask_versions);
    *count = sizeof components / sizeof components[0];
    return components;
}

bool lk_build_has(const char *name)
{
    size_t count;
    const lk_component *rows = lk_build_components(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].present;
    return false;
}

const char *lk_build_version(void)
{
    return LK_VERSION;
}

const char *lk_build_revision(void)
{
    return LK_REVISION;
}

const char *lk_build_compiler(void)
{
    return COMPILER ", " LK_BUILD_TYPE LK_SANITIZERS;
}
