/* Loaded code. A module is an image in a context, with its variables; a library is an image that becomes a
 * module in each context that uses it. CUfunction: a kernel of a module; CUkernel (struct sim_entry): a
 * kernel of a library. */
#pragma once
#include "context.h"
#include "driver_interop/loading.h"
#include "execute.h"
#include "variables.h"

struct sim_function_attributes {
    _Atomic int max_dynamic_shared; /* -1: never set */
    _Atomic int carveout;           /* percent, -1: none */
    _Atomic int cluster[3];         /* blocks of a cluster that the program requires; 0: none */
    _Atomic int non_portable;       /* clusters may be larger than every device has them */
    _Atomic int scheduling;         /* of clusters: a preference */
};

struct sim_function {
    struct sim_object object;
    struct sim_module *module; /* holds a reference */
    uint32_t index;            /* in the image */
    const struct sim_kernel_info *info;
    struct sim_function_attributes own,
        *attributes;                           /* its own, or those of the library's kernel for this device */
    atomic_bool known;                         /* asked for by its name, or loaded, and not only listed */
    _Atomic(struct sim_kernel *) kernel;       /* compiled; NULL before the first launch */
    _Atomic(struct gf_legacy_launch *) legacy; /* what cuParamSet* left; NULL: nothing */
};

struct sim_module {
    struct sim_object object;
    struct sim_context *context;
    struct sim_image *image;
    struct sim_library *library; /* whose image it is, with a reference; NULL: the module's own */
    struct sim_place *place;     /* of its variables; NULL: it has none */
    uint8_t **globals;           /* address of each variable */
    pthread_mutex_t lock;
    struct sim_function **functions;  /* made when asked for; each belongs to its handle */
    struct sim_reference *references; /* that were asked for */
    struct sim_module *next;          /* of the library, in other contexts */
};

struct sim_entry {
    struct sim_object object;
    struct sim_library *library;
    uint32_t index;
    const struct sim_kernel_info *info;
    struct sim_function_attributes attributes[]; /* per device */
};

struct sim_library {
    struct sim_object object;
    struct sim_image *image; /* NULL: its code is none, as `refused` says to whoever uses it */
    CUresult refused;
    struct sim_place *place; /* of the managed variables; NULL: there are none */
    uint8_t **managed;       /* their addresses (0: not one): the same in all contexts */
    pthread_mutex_t lock;
    struct sim_entry **entries;
    struct sim_module *modules;
};

/* Around the load of an image, which NVIDIA's driver does alone and when the device has nothing to do
 * (GPUFERRY_SIM_LOADS). */
void sim_load_begin(void);
void sim_load_end(void);
/* Whether kernels are made when their image is loaded, and not when they are first used. */
bool sim_image_eager(void);
CUresult sim_image_load(const void *image, size_t size, const struct gf_jit_log *log, struct sim_image **out);
/* Fills in the answers to options after work that produced `message` (may be empty). */
void sim_jit_report(const struct gf_jit_log *log, const char *message, uint64_t started_ns);

/* The image passes to the module, unless it belongs to the library. */
CUresult sim_module_new(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                        struct sim_module **module);
/* Closes its functions and its own handle. */
void sim_module_close(struct sim_module *module);
/* The function with that index; it stays good as long as the module does. */
CUresult sim_module_function(struct sim_module *module, uint32_t index, struct sim_function **function);
bool sim_image_find_kernel(const struct sim_image *image, const char *name, uint32_t *index);
/* A variable that is a reference of that kind. */
bool sim_image_find_reference(const struct sim_image *image, const char *name, enum sim_view_kind kind,
                              uint32_t *index);
bool sim_image_find_variable(const struct sim_image *image, const char *name, uint32_t *index);

/* The library's kernel with that index; it stays good as long as the library is loaded. */
CUresult sim_library_entry(struct sim_library *library, uint32_t index, struct sim_entry **entry);
/* The library's module in a context, made on first use. */
CUresult sim_library_module(struct sim_library *library, struct sim_context *context,
                            struct sim_module **module);
/* Drops all libraries' modules in a context that ends. */
void sim_libraries_forget_context(struct sim_context *context);

/* The function of a CUfunction, or of a CUkernel in the current context, with a reference. */
CUresult sim_function_acquire(CUfunction handle, struct sim_function **function);
/* The same in another context, that of the stream in which it is launched; NULL: the current one. */
CUresult sim_function_acquire_in(struct sim_context *context, CUfunction handle,
                                 struct sim_function **function);
/* The most dynamic shared memory a launch may ask for. */
uint32_t sim_function_max_dynamic(const struct sim_kernel_info *info,
                                  const struct sim_function_attributes *attributes);
/* The attribute where nobody has set it. */
uint32_t sim_function_as_loaded(const struct sim_kernel_info *info, CUfunction_attribute attribute);
/* How many blocks one multiprocessor holds. */
uint32_t sim_occupancy_blocks(const struct sim_kernel_info *info, uint32_t threads, uint64_t dynamic_shared);
