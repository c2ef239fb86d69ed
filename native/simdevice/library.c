#include "memory.h"
#include "module.h"
#include <stdlib.h>
#include <string.h>

static void destroy(void *pointer) {
    struct sim_library *library = pointer;
    for (uint32_t i = 0; library->managed && i < sim_image_variable_count(library->image); i++)
        if (library->managed[i])
            sim_memory_delete((uint64_t)library->managed[i]);
    sim_place_release(library->place);
    if (library->image)
        sim_image_close(library->image);
    free(library->managed);
    free(library->entries);
    pthread_mutex_destroy(&library->lock);
    free(library);
}

/* Managed variables exist as soon as the library does: cudart asks for them before it has a context. */
static CUresult place_managed(struct sim_library *library) {
    struct sim_context *context;
    struct sim_device *device =
        sim_context_current(&context) == CUDA_SUCCESS ? context->device : sim_device_at(0);
    uint32_t count = sim_image_variable_count(library->image);
    library->managed = calloc(count ? count : 1, sizeof *library->managed);
    if (!library->managed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(sim_variables_place(library->image, SIM_PLACED_LIBRARY, device, NULL, library->managed,
                                &library->place));
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_variable_info *variable = sim_image_variable(library->image, i);
        if (library->managed[i] && variable->initial)
            memcpy(library->managed[i], variable->initial, variable->size);
    }
    return CUDA_SUCCESS;
}

static CUresult fill(struct sim_library *library, struct sim_image *image) {
    uint32_t kernels = sim_image_kernel_count(image);
    library->image = image;
    library->entries = calloc(kernels ? kernels : 1, sizeof(struct sim_entry *));
    return library->entries ? place_managed(library) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* NULL: it is there though its code is none, as CUDA loads lazily; whoever uses it is told why. */
static CUresult library_new(struct sim_image *image, CUresult refused, struct sim_library **out) {
    struct sim_library *library = calloc(1, sizeof *library);
    if (!library) {
        if (image)
            sim_image_close(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->refused = refused;
    pthread_mutex_init(&library->lock, NULL);
    CUresult result = image ? fill(library, image) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && !sim_handle_open(library, SIM_LIBRARY, NULL, destroy))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        destroy(library);
    else
        *out = library;
    return result;
}

static CUresult load(CUlibrary *out, const void *code, size_t size, CUjit_option *options, void **values,
                     unsigned count, CUlibraryOption *library_options, unsigned library_count) {
    struct gf_jit_log log;
    struct sim_image *image;
    struct sim_library *library;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(out && code && (library_count == 0 || library_options)); /* some options have no value */
    for (unsigned i = 0; i < library_count; i++)
        SIM_REQUIRE((unsigned)library_options[i] < CU_LIBRARY_NUM_OPTIONS);
    SIM_TRY(gf_jit_options(count, options, values, &log));
    sim_load_begin();
    CUresult result = sim_image_load(code, size, &log, &image);
    bool refused = result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (result == CUDA_SUCCESS || refused)
        result = library_new(refused ? NULL : image, result, &library);
    sim_load_end();
    if (result == CUDA_SUCCESS)
        *out = SIM_POINTER(CUlibrary, library);
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                           unsigned int library_count) {
    return load(library, code, 0, options, values, count, library_options, library_count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                               unsigned int count, CUlibraryOption *library_options, void **library_values,
                               unsigned int library_count) {
    void *data;
    size_t size;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(library && path);
    SIM_TRY(gf_file_read(path, &data, &size));
    CUresult result = load(library, data, size, options, values, count, library_options, library_count);
    free(data);
    return result;
}

static CUresult acquire(CUlibrary handle, struct sim_library **library) {
    SIM_TRY(sim_enter());
    *library = sim_acquire(SIM_HANDLE(handle), SIM_LIBRARY);
    if (!*library)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult refused = (*library)->refused;
    if (refused != CUDA_SUCCESS)
        sim_release(*library);
    return refused;
}

/* Closes the modules that `context` (NULL: any) has of the library. */
static void close_modules(struct sim_library *library, const struct sim_context *context) {
    struct sim_module *closing = NULL, **place;
    pthread_mutex_lock(&library->lock);
    for (place = &library->modules; *place;) {
        struct sim_module *module = *place;
        if (context && module->context != context) {
            place = &module->next;
            continue;
        }
        *place = module->next;
        module->next = closing;
        closing = module;
    }
    pthread_mutex_unlock(&library->lock);
    while (closing) {
        struct sim_module *module = closing;
        closing = module->next;
        sim_module_close(module);
    }
}

CUresult cuLibraryUnload(CUlibrary handle) {
    SIM_TRY(sim_enter());
    struct sim_library *library = sim_handle_close(SIM_HANDLE(handle), SIM_LIBRARY);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    close_modules(library, NULL);
    sim_place_retire(library->place);
    pthread_mutex_lock(&library->lock);
    for (uint32_t i = 0; library->image && i < sim_image_kernel_count(library->image); i++) {
        struct sim_entry *entry = library->entries[i];
        library->entries[i] = NULL;
        if (entry && sim_handle_close(entry->object.handle, SIM_KERNEL))
            sim_release(entry);
    }
    pthread_mutex_unlock(&library->lock);
    sim_release(library);
    return CUDA_SUCCESS;
}

static void forget_context(void *library, void *context) {
    close_modules(library, context);
}

void sim_libraries_forget_context(struct sim_context *context) {
    sim_handle_for_each(SIM_LIBRARY, NULL, forget_context, context);
}

CUresult sim_library_module(struct sim_library *library, struct sim_context *context,
                            struct sim_module **out) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&library->lock);
    struct sim_module *module = library->modules;
    while (module && module->context != context)
        module = module->next;
    if (!module) {
        result = sim_module_new(context, library->image, library, &module);
        if (result == CUDA_SUCCESS) {
            module->next = library->modules;
            library->modules = module;
        }
    }
    pthread_mutex_unlock(&library->lock);
    *out = module;
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name) {
    struct sim_library *library;
    struct sim_entry *entry;
    uint32_t index;
    SIM_REQUIRE(kernel && name);
    SIM_TRY(acquire(handle, &library));
    CUresult result = sim_image_find_kernel(library->image, name, &index)
                          ? sim_library_entry(library, index, &entry)
                          : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        *kernel = SIM_POINTER(CUkernel, entry);
    sim_release(library);
    return result;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle) {
    struct sim_library *library;
    SIM_REQUIRE(count);
    SIM_TRY(acquire(handle, &library));
    *count = sim_image_kernel_count(library->image);
    sim_release(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int most, CUlibrary handle) {
    struct sim_library *library;
    SIM_REQUIRE(kernels || most == 0);
    SIM_TRY(acquire(handle, &library));
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < most && i < sim_image_kernel_count(library->image) && result == CUDA_SUCCESS;
         i++) {
        struct sim_entry *entry;
        result = sim_library_entry(library, i, &entry);
        if (result == CUDA_SUCCESS)
            kernels[i] = SIM_POINTER(CUkernel, entry);
    }
    sim_release(library);
    return result;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle) {
    struct sim_context *context;
    struct sim_library *library;
    struct sim_module *module;
    SIM_REQUIRE(out);
    SIM_TRY(sim_context_current(&context));
    SIM_TRY(acquire(handle, &library));
    CUresult result = sim_library_module(library, context, &module);
    if (result == CUDA_SUCCESS)
        *out = SIM_POINTER(CUmodule, module);
    sim_release(library);
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *size, CUlibrary handle, const char *name) {
    CUmodule module;
    SIM_REQUIRE(name && (pointer || size));
    SIM_TRY(cuLibraryGetModule(&module, handle));
    return cuModuleGetGlobal_v2(pointer, size, module, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *size, CUlibrary handle, const char *name) {
    struct sim_library *library;
    uint32_t index;
    SIM_REQUIRE(name && (pointer || size));
    SIM_TRY(acquire(handle, &library));
    bool found = sim_image_find_variable(library->image, name, &index) && library->managed[index];
    if (found && pointer)
        *pointer = (CUdeviceptr)library->managed[index];
    if (found && size)
        *size = sim_image_variable(library->image, index)->size;
    sim_release(library);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *symbol) {
    struct sim_library *library;
    SIM_REQUIRE(function && symbol);
    SIM_TRY(acquire(handle, &library));
    sim_release(library);
    return CUDA_ERROR_NOT_FOUND;
}
