/* The part of PJRT's C API that is used here: https://github.com/openxla/xla, xla/pjrt/c/pjrt_c_api.h, versions 0.x.
 * The layouts are those of version 0.94 of that header; the names are this project's. Arguments are structures that
 * begin with their size, and new members come last: an older plug-in ignores members that it does not know. A newer one
 * may refuse a structure that lacks members, so those that have grown before end in spare ones. Functions return NULL,
 * or an error that the caller destroys. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LK_PJRT_MAJOR = 0, LK_PJRT_SPARE = 8 };

typedef struct lk_pjrt_error lk_pjrt_error;             /* PJRT_Error */
typedef struct lk_pjrt_client lk_pjrt_client;           /* PJRT_Client */
typedef struct lk_pjrt_device lk_pjrt_device;           /* PJRT_Device */
typedef struct lk_pjrt_description lk_pjrt_description; /* PJRT_DeviceDescription */
typedef struct lk_pjrt_event lk_pjrt_event;             /* PJRT_Event */
typedef struct lk_pjrt_buffer lk_pjrt_buffer;           /* PJRT_Buffer */
typedef struct lk_pjrt_loaded lk_pjrt_loaded;           /* PJRT_LoadedExecutable */
typedef struct lk_pjrt_executable lk_pjrt_executable;   /* PJRT_Executable */
typedef struct lk_pjrt_topology lk_pjrt_topology;       /* PJRT_TopologyDescription */

/* Every structure begins with this. */
typedef struct lk_pjrt_head {
    size_t size;
    void *extensions;
} lk_pjrt_head;

/* --- errors and events -------------------------------------------------------------------------------------------- */

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

typedef struct lk_pjrt_of_event { /* PJRT_Event_Destroy_Args, PJRT_Event_Await_Args */
    lk_pjrt_head head;
    lk_pjrt_event *event;
} lk_pjrt_of_event;

typedef struct lk_pjrt_when_ready { /* PJRT_Event_OnReady_Args */
    lk_pjrt_head head;
    lk_pjrt_event *event;
    void (*call)(lk_pjrt_error *error, void *user); /* `error` belongs to it */
    void *user;
} lk_pjrt_when_ready;

/* --- clients and devices ------------------------------------------------------------------------------------------ */

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

typedef struct lk_pjrt_memory_number {
    int64_t value;
    bool is_set;
} lk_pjrt_memory_number;

typedef struct lk_pjrt_memory_stats { /* PJRT_Device_MemoryStats_Args */
    lk_pjrt_head head;
    lk_pjrt_device *device;
    int64_t in_use;
    lk_pjrt_memory_number peak, allocations, largest, limit, others[6];
    lk_pjrt_memory_number spare[LK_PJRT_SPARE];
} lk_pjrt_memory_stats;

/* --- programs ----------------------------------------------------------------------------------------------------- */

typedef struct lk_pjrt_program { /* PJRT_Program */
    lk_pjrt_head head;
    char *code;
    size_t code_size;
    const char *format;
    size_t format_size;
} lk_pjrt_program;

typedef struct lk_pjrt_compile { /* PJRT_Client_Compile_Args */
    lk_pjrt_head head;
    lk_pjrt_client *client;
    const lk_pjrt_program *program;
    const char *options; /* a serialized xla.CompileOptionsProto */
    size_t options_size;
    lk_pjrt_loaded *loaded;
} lk_pjrt_compile;

typedef struct lk_pjrt_destroy_loaded { /* PJRT_LoadedExecutable_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_loaded *loaded;
} lk_pjrt_destroy_loaded;

typedef struct lk_pjrt_execute_options { /* PJRT_ExecuteOptions */
    lk_pjrt_head head;
    void *sends, *receives;
    size_t n_sends, n_receives;
    int launch;
    const int64_t *kept; /* parameters that must not be donated */
    size_t n_kept;
    void *context;
    const char *call_location;
    size_t n_tasks;
    int *tasks;
    int64_t *incarnations;
    void *spare[LK_PJRT_SPARE];
} lk_pjrt_execute_options;

typedef struct lk_pjrt_execute { /* PJRT_LoadedExecutable_Execute_Args */
    lk_pjrt_head head;
    lk_pjrt_loaded *loaded;
    lk_pjrt_execute_options *options;
    lk_pjrt_buffer *const *const *arguments; /* [n_devices][n_arguments] */
    size_t n_devices, n_arguments;
    lk_pjrt_buffer **const *results; /* [n_devices][…]: set */
    lk_pjrt_event **done;            /* [n_devices]: set */
    lk_pjrt_device *device;
} lk_pjrt_execute;

/* --- buffers ------------------------------------------------------------------------------------------------------ */

/* PJRT_Buffer_Type */
enum {
    LK_PJRT_S32 = 4,
    LK_PJRT_S64 = 5,
    LK_PJRT_U8 = 6,
    LK_PJRT_U64 = 9,
    LK_PJRT_F32 = 11,
    LK_PJRT_F64 = 12,
    LK_PJRT_BF16 = 13,
};

/* PJRT_HostBufferSemantics */
enum { LK_PJRT_COPIED_DURING_CALL = 0 };

typedef struct lk_pjrt_upload { /* PJRT_Client_BufferFromHostBuffer_Args */
    lk_pjrt_head head;
    lk_pjrt_client *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t n_dims;
    const int64_t *byte_strides;
    size_t n_byte_strides;
    int semantics;
    lk_pjrt_device *device;
    void *memory, *layout;
    lk_pjrt_event *done; /* set: `data` is not needed any more */
    lk_pjrt_buffer *buffer;
} lk_pjrt_upload;

typedef struct lk_pjrt_of_buffer { /* PJRT_Buffer_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_buffer *buffer;
} lk_pjrt_of_buffer;

typedef struct lk_pjrt_copy_to_device { /* PJRT_Buffer_CopyToDevice_Args */
    lk_pjrt_head head;
    lk_pjrt_buffer *buffer;
    lk_pjrt_device *device;
    lk_pjrt_buffer *copy;
} lk_pjrt_copy_to_device;

typedef struct lk_pjrt_download { /* PJRT_Buffer_ToHostBuffer_Args */
    lk_pjrt_head head;
    lk_pjrt_buffer *buffer;
    void *layout;
    void *to;
    size_t to_size;
    lk_pjrt_event *done;
} lk_pjrt_download;

/* --- topologies and what is compiled for them --------------------------------------------------------------------- */

enum { LK_PJRT_NAMED_FLOAT = 3 }; /* PJRT_NamedValue_Type */

typedef struct lk_pjrt_named { /* PJRT_NamedValue */
    lk_pjrt_head head;
    const char *name;
    size_t name_size;
    int type;
    union {
        const char *text;
        int64_t number;
        float real;
    } value;
    size_t value_size;
} lk_pjrt_named;

typedef struct lk_pjrt_create_topology { /* PJRT_TopologyDescription_Create_Args */
    lk_pjrt_head head;
    const char *name;
    size_t name_size;
    const lk_pjrt_named *options;
    size_t n_options;
    lk_pjrt_topology *topology;
} lk_pjrt_create_topology;

typedef struct lk_pjrt_destroy_topology { /* PJRT_TopologyDescription_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_topology *topology;
} lk_pjrt_destroy_topology;

typedef struct lk_pjrt_list_topology { /* PJRT_TopologyDescription_GetDeviceDescriptions_Args */
    lk_pjrt_head head;
    lk_pjrt_topology *topology;
    lk_pjrt_description *const *descriptions;
    size_t n_descriptions;
} lk_pjrt_list_topology;

typedef struct lk_pjrt_compile_for { /* PJRT_Compile_Args */
    lk_pjrt_head head;
    const lk_pjrt_topology *topology;
    const lk_pjrt_program *program;
    const char *options;
    size_t options_size;
    lk_pjrt_client *client;
    lk_pjrt_executable *executable;
} lk_pjrt_compile_for;

typedef struct lk_pjrt_destroy_executable { /* PJRT_Executable_Destroy_Args */
    lk_pjrt_head head;
    lk_pjrt_executable *executable;
} lk_pjrt_destroy_executable;

typedef struct lk_pjrt_costs { /* PJRT_Executable_GetCostAnalysis_Args */
    lk_pjrt_head head;
    lk_pjrt_executable *executable;
    size_t n_properties;
    const lk_pjrt_named *properties;
} lk_pjrt_costs;

typedef struct lk_pjrt_memory_needs { /* PJRT_Executable_GetCompiledMemoryStats_Args */
    lk_pjrt_head head;
    lk_pjrt_executable *executable;
    int64_t code, arguments, outputs, aliased, temporary, host[5], peak;
    int64_t spare[LK_PJRT_SPARE];
} lk_pjrt_memory_needs;

typedef struct lk_pjrt_serialize { /* PJRT_Executable_Serialize_Args */
    lk_pjrt_head head;
    const lk_pjrt_executable *executable;
    const char *bytes;
    size_t n_bytes;
    void *serialized;
    void (*destroy)(void *serialized);
} lk_pjrt_serialize;

/* --- functions ---------------------------------------------------------------------------------------------------- */

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
    lk_pjrt_error *(*event_destroy)(lk_pjrt_of_event *args);
    lk_pjrt_unused event_questions[2]; /* is it ready, its error */
    lk_pjrt_error *(*event_await)(lk_pjrt_of_event *args);
    lk_pjrt_error *(*event_when_ready)(lk_pjrt_when_ready *args);
    lk_pjrt_error *(*client_create)(lk_pjrt_create_client *args);
    lk_pjrt_error *(*client_destroy)(lk_pjrt_destroy_client *args);
    lk_pjrt_error *(*client_platform)(lk_pjrt_client_text *args);
    lk_pjrt_unused client_process;
    lk_pjrt_error *(*client_version)(lk_pjrt_client_text *args);
    lk_pjrt_unused client_devices;
    lk_pjrt_error *(*client_addressable_devices)(lk_pjrt_list_devices *args);
    lk_pjrt_unused client_lookups[3]; /* a device, an addressable device, memories */
    lk_pjrt_error *(*compile)(lk_pjrt_compile *args);
    lk_pjrt_unused client_assignment;
    lk_pjrt_error *(*upload)(lk_pjrt_upload *args);
    lk_pjrt_unused description_numbers[4]; /* id, process, attributes, kind */
    lk_pjrt_error *(*description_debug_text)(lk_pjrt_description_text *args);
    lk_pjrt_unused description_to_text;
    lk_pjrt_error *(*device_description)(lk_pjrt_describe_device *args);
    lk_pjrt_unused device_facts[4]; /* addressable, number, memories, default memory */
    lk_pjrt_error *(*memory_stats)(lk_pjrt_memory_stats *args);
    lk_pjrt_unused memory_facts[5];
    lk_pjrt_error *(*executable_destroy)(lk_pjrt_destroy_executable *args);
    lk_pjrt_unused executable_facts[5];
    lk_pjrt_error *(*costs)(lk_pjrt_costs *args);
    lk_pjrt_unused executable_texts[2]; /* kinds of memory, the optimized program */
    lk_pjrt_error *(*serialize)(lk_pjrt_serialize *args);
    lk_pjrt_error *(*loaded_destroy)(lk_pjrt_destroy_loaded *args);
    lk_pjrt_unused loaded_facts[4]; /* executable, devices, deletion */
    lk_pjrt_error *(*execute)(lk_pjrt_execute *args);
    lk_pjrt_unused loaded_others[2]; /* loading, fingerprint */
    lk_pjrt_error *(*buffer_destroy)(lk_pjrt_of_buffer *args);
    lk_pjrt_unused buffer_facts[10];
    lk_pjrt_error *(*copy_to_device)(lk_pjrt_copy_to_device *args);
    lk_pjrt_error *(*download)(lk_pjrt_download *args);
    lk_pjrt_unused buffer_pointers[6], streams[5];
    lk_pjrt_error *(*topology_create)(lk_pjrt_create_topology *args);
    lk_pjrt_error *(*topology_destroy)(lk_pjrt_destroy_topology *args);
    lk_pjrt_unused topology_texts[2];
    lk_pjrt_error *(*topology_list)(lk_pjrt_list_topology *args);
    lk_pjrt_unused topology_facts[2];
    lk_pjrt_error *(*compile_for)(lk_pjrt_compile_for *args);
    lk_pjrt_unused later[6]; /* facts of executables, copies to memories, views, fingerprints, a client's topology */
    lk_pjrt_error *(*memory_needs)(lk_pjrt_memory_needs *args);
} lk_pjrt_api;

/* The only function that a plug-in exports. */
#define LK_PJRT_SYMBOL "GetPjrtApi"
typedef const lk_pjrt_api *(*lk_pjrt_api_fn)(void);
