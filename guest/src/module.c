#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `made` */
_Atomic uint64_t gf_modules_ended;

struct gf_callable *gf_callable_find(uint64_t handle) {
    struct gf_callable *found = gf_function_find((CUfunction)handle);
    return found != NULL ? found : gf_kernel_find((CUkernel)handle);
}

/* A function of a module or a kernel of a library, by its place in the table. */
static CUresult entry(struct gf_module *owner, uint32_t index, uint64_t *out) {
    uint64_t owner_handle = atomic_load(&owner->object.handle);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    uint64_t handle = owner->made[index];
    if (handle == 0) {
        bool in_library = gf_handle_kind(owner_handle) == GF_HANDLE_LIBRARY;
        struct gf_callable *callable = in_library ? gf_kernel_new(&handle) : gf_function_new(&handle);
        result = callable == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS) {
            callable->index = index;
            callable->info = &owner->table->kernels[index];
            callable->context = in_library ? 0 : owner->object.owner;
            callable->attributes = owner->table->kernels[index].settings;
            callable->stride = in_library ? GF_SETTINGS : 0;
            if (owner->origin != NULL) { /* on its context's device */
                callable->attributes += gf_context_device(owner->object.owner) * GF_SETTINGS;
            }
            struct gf_req_sessionGetFunction request = {
                .function = handle, .owner = owner_handle, .index = index};
            result = gf_send_struct(GF_OP_sessionGetFunction, &request);
            if (result == CUDA_SUCCESS) {
                gf_object_publish(callable, handle, owner);
                owner->made[index] = handle;
            } else {
                gf_object_discard(callable);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS) {
        *out = handle;
    }
    return result;
}

CUresult gf_entry_by_name(struct gf_module *owner, const char *name, void *handle) {
    int index = gf_kernel_table_find(owner->table, name);
    return index < 0 ? CUDA_ERROR_NOT_FOUND : entry(owner, (uint32_t)index, handle);
}

CUresult gf_entries(struct gf_module *owner, unsigned count, void *handles) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < count && i < owner->table->count && result == CUDA_SUCCESS; i++) {
        result = entry(owner, i, (uint64_t *)handles + i);
    }
    return result;
}

static void let_go(struct gf_module *module) {
    gf_globals_forget(module);
    pthread_mutex_lock(&lock);
    for (struct gf_module **link = module->origin == NULL ? NULL : &module->origin->instances; link != NULL;
         link = &(*link)->next_instance) {
        if (*link == module) {
            *link = module->next_instance;
            break;
        }
    }
    if (module->origin == NULL) {
        gf_kernel_table_free(module->table);
    }
    free((void *)module->made);
    module->table = NULL;
    module->made = NULL;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&gf_modules_ended, 1);
}

void gf_module_ended(struct gf_object *object) {
    let_go((struct gf_module *)object);
}

void gf_library_ended(struct gf_object *object) {
    let_go((struct gf_module *)object);
}

/* One of the library's modules, or NULL; it is in its context's hands too. */
static struct gf_module *an_instance(struct gf_module *library, uint64_t context) {
    struct gf_module *module = library->instances;
    while (module != NULL && context != 0 && module->object.owner != context) {
        module = module->next_instance;
    }
    return module;
}

CUresult gf_module_of_library(struct gf_module *library, CUmodule *out) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    uint64_t handle;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&making);
    pthread_mutex_lock(&lock);
    struct gf_module *module = an_instance(library, gf_context_current_handle());
    handle = module == NULL ? 0 : atomic_load(&module->object.handle);
    pthread_mutex_unlock(&lock);
    if (handle != 0) {
        result = CUDA_SUCCESS;
    } else if ((module = gf_module_new(&handle)) != NULL) {
        module->library = atomic_load(&library->object.handle);
        module->made = calloc(library->table->count + 1u, sizeof *module->made);
        struct gf_req_sessionGetModule request = {.module = handle, .library = module->library};
        result = module->made == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                      : gf_send_struct(GF_OP_sessionGetModule, &request);
        if (result == CUDA_SUCCESS) {
            pthread_mutex_lock(&lock);
            module->origin = library;
            module->table = library->table;
            module->next_instance = library->instances;
            library->instances = module;
            pthread_mutex_unlock(&lock);
            gf_object_publish(module, handle, gf_context_current());
        } else {
            free((void *)module->made);
            gf_object_discard(module);
        }
    }
    pthread_mutex_unlock(&making);
    if (result == CUDA_SUCCESS) {
        *out = (CUmodule)handle;
    }
    return result;
}

/* The modules of a library that ends, whatever contexts they are in. */
static struct gf_object *end_instances(struct gf_module *library) {
    struct gf_object *ended = NULL, **tail = &ended;
    pthread_mutex_lock(&lock);
    for (struct gf_module *module = library->instances; module != NULL; module = module->next_instance) {
        *tail = gf_object_end(module, atomic_load(&module->object.handle));
        while (*tail != NULL) {
            tail = &(*tail)->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return ended;
}

static CUresult unload(struct gf_module *origin, uint64_t library) {
    CUresult result = gf_library_settle(origin, library);
    bool is_there = origin->refused == CUDA_SUCCESS; /* on the server */
    if (result != CUDA_SUCCESS && is_there) {
        return result;
    }
    struct gf_object *instances = end_instances(origin);
    struct gf_object *ended = gf_object_end(origin, library);
    if (ended != NULL) {
        struct gf_req_cuLibraryUnload request = {.library = library};
        result = is_there ? gf_send_struct(GF_OP_cuLibraryUnload, &request) : CUDA_SUCCESS;
    } else {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    gf_objects_release(instances);
    gf_objects_release(ended);
    return result;
}

CUresult gf_cuLibraryUnload(CUlibrary library) {
    struct gf_module *origin = gf_library_find(library);
    return origin == NULL ? CUDA_ERROR_INVALID_HANDLE : unload(origin, (uint64_t)library);
}

CUresult gf_module_load(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                        void **values) {
    struct gf_jit_log log = {0};
    uint64_t handle;
    CUresult result = count > 0 ? gf_jit_options(count, options, values, &log) : CUDA_SUCCESS;
    result = result == CUDA_SUCCESS ? gf_image_load(GF_HANDLE_MODULE, image, &log, &handle) : result;
    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)handle;
    }
    return result;
}

CUresult gf_cuModuleLoad(CUmodule *module, const char *fname) {
    void *data;
    size_t size;
    CUresult result = fname == NULL ? CUDA_ERROR_INVALID_VALUE : gf_file_read(fname, &data, &size);
    if (result == CUDA_SUCCESS) {
        result = gf_cuModuleLoadData(module, data);
        free(data);
    }
    return result;
}

CUresult gf_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    struct gf_callable *callable = gf_callable_find((uint64_t)hfunc);
    if (hmod == NULL || hfunc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_module *library = gf_library_find((CUlibrary)callable->object.owner);
    if (library != NULL) {
        return gf_module_of_library(library, hmod);
    }
    *hmod = (CUmodule)callable->object.owner;
    return CUDA_SUCCESS;
}

CUresult gf_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct gf_callable *callable = gf_kernel_find(kernel);
    struct gf_module *library = callable == NULL ? NULL : gf_library_find((CUlibrary)callable->object.owner);
    CUmodule module;
    if (pFunc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = library == NULL ? CUDA_ERROR_INVALID_HANDLE : gf_module_of_library(library, &module);
    return result != CUDA_SUCCESS ? result
                                  : entry(gf_module_find(module), callable->index, (uint64_t *)pFunc);
}
