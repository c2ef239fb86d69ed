#include <stdlib.h>

#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "module.h"

CUresult gf_library_module(CUlibrary library, uint64_t *out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct gf_module *origin = gf_library_find(library);
    uint64_t context = gf_context_current_handle();
    if (origin == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&lock);
    for (uint32_t slot = 0; slot < gf_modules.slots; slot++) {
        struct gf_module *module = gf_table_at(&gf_modules, slot);
        if (module != NULL && module->library == (uint64_t)library && module->object.owner == context) {
            *out = atomic_load(&module->object.handle);
            pthread_mutex_unlock(&lock);
            return CUDA_SUCCESS;
        }
    }
    struct gf_module *module = gf_table_take(&gf_modules, out);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (module != NULL) {
        module->object.owner = context;
        module->library = (uint64_t)library;
        module->table = origin->table;
        module->borrowed = true;
        module->made = calloc(origin->table->count + 1u, sizeof *module->made);
        struct gf_req_sessionGetModule request = {.module = *out, .library = (uint64_t)library};
        result = module->made == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                      : gf_send_struct(GF_OP_sessionGetModule, &request);
        gf_table_publish(module, *out);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Library options say how long the image stays where it is, and it is copied here. */
CUresult gf_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                              void **jitOptionsValues, unsigned numJitOptions,
                              CUlibraryOption *libraryOptions, void **libraryOptionValues,
                              unsigned numLibraryOptions) {
    uint64_t handle;
    struct gf_jit_log log;
    if (library == NULL || (numLibraryOptions > 0 && libraryOptions == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_jit_options(numJitOptions, jitOptions, jitOptionsValues, &log);
    result = result == CUDA_SUCCESS ? gf_module_load_into(&gf_libraries, code, &log, &handle) : result;
    if (result == CUDA_SUCCESS) {
        *library = (CUlibrary)handle;
    }
    return result;
}

CUresult gf_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                                  void **jitOptionsValues, unsigned numJitOptions,
                                  CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                  unsigned numLibraryOptions) {
    void *data;
    size_t size;
    CUresult result = fileName == NULL ? CUDA_ERROR_INVALID_VALUE : gf_file_read(fileName, &data, &size);
    if (result == CUDA_SUCCESS) {
        result = gf_cuLibraryLoadData(library, data, jitOptions, jitOptionsValues, numJitOptions,
                                      libraryOptions, libraryOptionValues, numLibraryOptions);
        free(data);
    }
    return result;
}

CUresult gf_cuLibraryUnload(CUlibrary library) {
    struct gf_module *origin = gf_library_find(library);
    if (origin == NULL || !gf_table_end(origin)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (uint32_t slot = 0; slot < gf_modules.slots; slot++) {
        struct gf_module *module = gf_table_at(&gf_modules, slot);
        uint64_t handle = module == NULL ? 0 : atomic_load(&module->object.handle);
        if (handle != 0 && module->library == (uint64_t)library && gf_table_end(module)) {
            gf_module_end(&gf_modules, module, handle);
        }
    }
    struct gf_req_cuLibraryUnload request = {.library = (uint64_t)library};
    CUresult result = gf_send_struct(GF_OP_cuLibraryUnload, &request);
    gf_module_end(&gf_libraries, origin, (uint64_t)library);
    return result;
}

CUresult gf_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    struct gf_module *origin = gf_library_find(library);
    if (pKernel == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (origin == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int index = gf_kernel_table_find(origin->table, name);
    return index < 0 ? CUDA_ERROR_NOT_FOUND
                     : gf_module_callable(origin, (uint64_t)library, (uint32_t)index, (uint64_t *)pKernel);
}

CUresult gf_cuLibraryGetKernelCount(unsigned *count, CUlibrary lib) {
    struct gf_module *origin = gf_library_find(lib);
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (origin == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *count = origin->table->count;
    return CUDA_SUCCESS;
}

CUresult gf_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned numKernels, CUlibrary lib) {
    struct gf_module *origin = gf_library_find(lib);
    if (kernels == NULL || numKernels == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (origin == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < numKernels && i < origin->table->count && result == CUDA_SUCCESS; i++) {
        result = gf_module_callable(origin, (uint64_t)lib, i, (uint64_t *)&kernels[i]);
    }
    return result;
}

CUresult gf_cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    return pMod == NULL ? CUDA_ERROR_INVALID_VALUE : gf_library_module(library, (uint64_t *)pMod);
}

CUresult gf_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    struct gf_module *origin = gf_library_find(library);
    return origin == NULL ? CUDA_ERROR_INVALID_HANDLE
                          : gf_module_global(origin, (uint64_t)library, name, dptr, bytes);
}

CUresult gf_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
    struct gf_callable *callable = gf_kernel_find(kernel);
    if (pLib == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *pLib = (CUlibrary)callable->object.owner;
    return CUDA_SUCCESS;
}

CUresult gf_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct gf_callable *callable = gf_kernel_find(kernel);
    uint64_t handle;
    if (pFunc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (callable == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = gf_library_module((CUlibrary)callable->object.owner, &handle);
    struct gf_module *module = result == CUDA_SUCCESS ? gf_module_find((CUmodule)handle) : NULL;
    if (module == NULL) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    return gf_module_callable(module, handle, callable->index, (uint64_t *)pFunc);
}
