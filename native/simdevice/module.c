#include "module.h"
#include "log.h"
#include "memory.h"
#include "reference.h"
#include <stdlib.h>
#include <string.h>

static void destroy(void *pointer) {
    struct sim_module *module = pointer;
    for (uint32_t i = 0; module->globals && i < sim_image_variable_count(module->image); i++)
        if (module->globals[i] && !(module->library && module->library->managed[i]))
            sim_memory_delete((uint64_t)module->globals[i]);
    sim_place_release(module->place);
    free(module->globals);
    free(module->functions);
    pthread_mutex_destroy(&module->lock);
    if (module->library)
        sim_release(module->library);
    else
        sim_image_close(module->image);
    free(module);
}

static CUresult place_variables(struct sim_module *module) {
    uint32_t count = sim_image_variable_count(module->image);
    module->globals = calloc(count ? count : 1, sizeof *module->globals);
    if (!module->globals)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (module->library)
        memcpy(module->globals, module->library->managed, count * sizeof *module->globals);
    SIM_TRY(sim_variables_place(module->image, SIM_PLACED_MODULE, module->context->device, module->context,
                                module->globals, &module->place));
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_variable_info *variable = sim_image_variable(module->image, i);
        bool shared = module->library && module->library->managed[i];
        if (variable->initial && !shared) /* a managed one got its value with the library */
            memcpy(module->globals[i], variable->initial, variable->size);
        for (uint32_t r = 0; r < variable->relocation_count; r++) {
            const struct sim_relocation *relocation = &variable->relocations[r];
            uint64_t address = (uint64_t)module->globals[relocation->variable] + (uint64_t)relocation->addend;
            memcpy(module->globals[i] + relocation->offset, (const char *)&address + relocation->first,
                   relocation->count);
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_module_new(struct sim_context *context, struct sim_image *image, struct sim_library *library,
                        struct sim_module **out) {
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module) {
        if (!library)
            sim_image_close(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->context = context;
    module->image = image;
    module->library = library;
    if (library)
        sim_retain(library);
    pthread_mutex_init(&module->lock, NULL);
    uint32_t kernels = sim_image_kernel_count(image);
    module->functions = calloc(kernels ? kernels : 1, sizeof(struct sim_function *));
    CUresult result = module->functions ? place_variables(module) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !sim_handle_open(module, SIM_MODULE, context, destroy))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        destroy(module);
    else
        *out = module;
    return result;
}

void sim_module_close(struct sim_module *module) {
    sim_references_close(module);
    pthread_mutex_lock(&module->lock);
    for (uint32_t i = 0; i < sim_image_kernel_count(module->image); i++)
        if (module->functions[i] && sim_handle_close(module->functions[i]->object.handle, SIM_FUNCTION))
            sim_release(module->functions[i]);
    pthread_mutex_unlock(&module->lock);
    sim_place_retire(module->place);
    if (sim_handle_close(module->object.handle, SIM_MODULE))
        sim_release(module);
}

static void destroy_function(void *pointer) {
    struct sim_function *function = pointer;
    sim_release(function->module);
    free(atomic_load(&function->legacy));
    free(function);
}

/* Module's lock held. */
static CUresult function_at(struct sim_module *module, uint32_t index, struct sim_function **out) {
    if (!module->functions[index]) {
        struct sim_function *function = calloc(1, sizeof *function);
        struct sim_entry *entry = NULL;
        if (!function)
            return CUDA_ERROR_OUT_OF_MEMORY;
        function->module = module;
        function->index = index;
        function->info = sim_image_kernel(module->image, index);
        function->own.max_dynamic_shared = function->own.carveout = -1;
        function->attributes = &function->own;
        if (module->library && sim_library_entry(module->library, index, &entry) == CUDA_SUCCESS)
            function->attributes = &entry->attributes[module->context->device->ordinal];
        if (!sim_handle_open(function, SIM_FUNCTION, module->context, destroy_function)) {
            free(function);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        sim_retain(module);
        module->functions[index] = function;
    }
    *out = module->functions[index];
    return CUDA_SUCCESS;
}

CUresult sim_module_function(struct sim_module *module, uint32_t index, struct sim_function **function) {
    pthread_mutex_lock(&module->lock);
    CUresult result = function_at(module, index, function);
    pthread_mutex_unlock(&module->lock);
    return result;
}

static CUresult acquire(CUmodule handle, struct sim_module **module) {
    SIM_TRY(sim_enter());
    *module = sim_acquire(SIM_HANDLE(handle), SIM_MODULE);
    if (!*module)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_context_check((*module)->context);
    if (result != CUDA_SUCCESS)
        sim_release(*module);
    return result;
}

bool sim_image_find_kernel(const struct sim_image *image, const char *name, uint32_t *index) {
    uint32_t count = sim_image_kernel_count(image);
    for (*index = 0; *index < count; ++*index)
        if (strcmp(sim_image_kernel(image, *index)->name, name) == 0)
            return true;
    return false;
}

static bool find_variable(const struct sim_image *image, const char *name, enum sim_view_kind reference,
                          uint32_t *index) {
    for (uint32_t i = 0; i < sim_image_variable_count(image); i++) {
        const struct sim_variable_info *variable = sim_image_variable(image, i);
        if (variable->reference == reference && !strcmp(variable->name, name)) {
            *index = i;
            return true;
        }
    }
    return false;
}

bool sim_image_find_variable(const struct sim_image *image, const char *name, uint32_t *index) {
    return find_variable(image, name, 0, index);
}

bool sim_image_find_reference(const struct sim_image *image, const char *name, enum sim_view_kind kind,
                              uint32_t *index) {
    return find_variable(image, name, kind, index);
}

static CUresult load(CUmodule *out, const void *image, size_t size, unsigned count, CUjit_option *options,
                     void **values) {
    struct sim_context *context;
    struct gf_jit_log log;
    struct sim_image *opened;
    struct sim_module *module;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out && image);
    SIM_TRY(gf_jit_options(count, options, values, &log));
    sim_load_begin();
    CUresult result = sim_image_load(image, size, &log, &opened);
    if (result == CUDA_SUCCESS)
        result = sim_module_new(context, opened, NULL, &module);
    sim_load_end();
    if (result == CUDA_SUCCESS)
        *out = SIM_POINTER(CUmodule, module);
    return result;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load(module, image, 0, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values) {
    return load(module, image, 0, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return load(module, image, 0, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    struct sim_context *context;
    void *data;
    size_t size;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(module && path);
    SIM_TRY(gf_file_read(path, &data, &size));
    CUresult result = load(module, data, size, 0, NULL, NULL);
    free(data);
    return result;
}

CUresult cuModuleUnload(CUmodule handle) {
    struct sim_module *module;
    SIM_TRY(acquire(handle, &module));
    bool own = !module->library; /* a library's module goes with the library */
    if (own)
        sim_module_close(module);
    sim_release(module);
    return own ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(mode);
    *mode = sim_image_eager() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    struct sim_module *module;
    struct sim_function *function;
    uint32_t index;
    SIM_REQUIRE(out && name);
    SIM_TRY(acquire(handle, &module));
    CUresult result = sim_image_find_kernel(module->image, name, &index)
                          ? sim_module_function(module, index, &function)
                          : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS) {
        atomic_store(&function->known, true);
        *out = SIM_POINTER(CUfunction, function);
    }
    sim_release(module);
    return result;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle) {
    struct sim_module *module;
    SIM_REQUIRE(count);
    SIM_TRY(acquire(handle, &module));
    *count = sim_image_kernel_count(module->image);
    sim_release(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int most, CUmodule handle) {
    struct sim_module *module;
    SIM_REQUIRE(functions && most);
    SIM_TRY(acquire(handle, &module));
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < most && i < sim_image_kernel_count(module->image) && result == CUDA_SUCCESS;
         i++) {
        struct sim_function *function;
        result = sim_module_function(module, i, &function);
        if (result == CUDA_SUCCESS)
            functions[i] = SIM_POINTER(CUfunction, function);
    }
    sim_release(module);
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *size, CUmodule handle, const char *name) {
    struct sim_module *module;
    uint32_t index;
    SIM_REQUIRE(name && (pointer || size));
    SIM_TRY(acquire(handle, &module));
    bool found = sim_image_find_variable(module->image, name, &index);
    if (found && pointer)
        *pointer = (CUdeviceptr)module->globals[index];
    if (found && size)
        *size = sim_image_variable(module->image, index)->size;
    sim_release(module);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
