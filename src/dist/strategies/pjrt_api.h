/* The part of PJRT's C API that finds devices: https://github.com/openxla/xla, xla/pjrt/c/pjrt_c_api.h, versions 0.x.
 * The layouts are those of version 0.94 of that header; the names are this project's. Arguments are structures that
 * begin with their size, and new members come last: an older plug-in ignores members that it does not know, and a newer
 * one takes missing members for absent. Functions return NULL, or an error that the caller destroys. */
#pragma once

#include <stddef.h>

enum { LK_PJRT_MAJOR = 0 };

typedef struct lk_pjrt_error lk_pjrt_error;             /* PJRT_Error */
typedef struct lk_pjrt_client lk_pjrt_client;           /* PJRT_Client */
typedef struct lk_pjrt_device lk_pjrt_device;           /* PJRT_Device */
typedef struct lk_pjrt_description lk_pjrt_description; /* PJRT_DeviceDescription */

/* Every structure begins with this. */
typedef struct lk_pjrt_head {
    size_t size;
    void *extensions;
} lk_pjrt_head;

typedef struct lk_pjrt_destroy_error { /* PJRT_Error_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_error *error;
} lk_pjrt_destroy_error;

typedef struct lk_pjrt_read_error { /* PJRT_Error_Message_Args */
    lk_pjrt_head head;
    const lk_pjrt_error *error;
    const char *message;
    size_t message_size;
} lk_pjrt_read_error;

typedef struct lk_pjrt_create_client { /* PJRT_Client_Create_Args */
    lk_pjrt_head head;
    const void *options;
    size_t n_options;
    void (*get)(void); /* with the members below: a store that processes share; NULL, for there is one process */
    void *get_user;
    void (*put)(void);
    void *put_user;
    lk_pjrt_client *client;
    void (*try_get)(void);
    void *try_get_user;
} lk_pjrt_create_client;

typedef struct lk_pjrt_destroy_client { /* PJRT_Client_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_client *client;
} lk_pjrt_destroy_client;

typedef struct lk_pjrt_client_text { /* PJRT_Client_PlatformName_Args, PJRT_Client_PlatformVersion_Args */
    lk_pjrt_head head;
    lk_pjrt_client *client;
    const char *text;
    size_t text_size;
} lk_pjrt_client_text;

typedef struct lk_pjrt_list_devices { /* PJRT_Client_AddressableDevices_Args */
    lk_pjrt_head head;
    lk_pjrt_client *client;
    lk_pjrt_device *const *devices;
    size_t n_devices;
} lk_pjrt_list_devices;

typedef struct lk_pjrt_describe_device { /* PJRT_Device_GetDescription_Args */
    lk_pjrt_head head;
    lk_pjrt_device *device;
    lk_pjrt_description *description;
} lk_pjrt_describe_device;

typedef struct lk_pjrt_description_text { /* PJRT_DeviceDescription_DebugString_Args */
    lk_pjrt_head head;
    lk_pjrt_description *description;
    const char *text;
    size_t text_size;
} lk_pjrt_description_text;

typedef void (*lk_pjrt_unused)(void);

/* PJRT_Api, up to the last function that is called here; the plug-in's table may be longer. */
typedef struct lk_pjrt_api {
    lk_pjrt_head head;
    struct {
        lk_pjrt_head head;
        int major, minor;
    } version;
    void (*error_destroy)(lk_pjrt_destroy_error *args);
    void (*error_message)(lk_pjrt_read_error *args);
    lk_pjrt_unused error_code;
    lk_pjrt_error *(*initialize)(lk_pjrt_head *args);
    lk_pjrt_unused attributes;
    lk_pjrt_unused events[5];
    lk_pjrt_error *(*client_create)(lk_pjrt_create_client *args);
    lk_pjrt_error *(*client_destroy)(lk_pjrt_destroy_client *args);
    lk_pjrt_error *(*client_platform)(lk_pjrt_client_text *args);
    lk_pjrt_unused client_process;
    lk_pjrt_error *(*client_version)(lk_pjrt_client_text *args);
    lk_pjrt_unused client_devices;
    lk_pjrt_error *(*client_addressable_devices)(lk_pjrt_list_devices *args);
    lk_pjrt_unused client_others[6];       /* lookups, memories, compilation, uploads */
    lk_pjrt_unused description_numbers[4]; /* id, process, attributes, kind */
    lk_pjrt_error *(*description_debug_text)(lk_pjrt_description_text *args);
    lk_pjrt_unused description_to_text;
    lk_pjrt_error *(*device_description)(lk_pjrt_describe_device *args);
} lk_pjrt_api;

/* The only function that a plug-in exports. */
#define LK_PJRT_SYMBOL "GetPjrtApi"
typedef const lk_pjrt_api *(*lk_pjrt_api_fn)(void);
