#include <stdlib.h>

#include "functions.h"
#include "module.h"

/* Library options say how long the image stays where it is, and it is copied here. */
CUresult gf_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                              void **jitOptionsValues, unsigned numJitOptions,
                              CUlibraryOption *libraryOptions, void **libraryOptionValues,
                              unsigned numLibraryOptions) {
    uint64_t handle;
    struct gf_jit_log log;
    if (library == NULL || (numLibraryOptions > 0 && libraryOptions == NULL)) { /* some have no value */
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < numLibraryOptions; i++) {
        if ((unsigned)libraryOptions[i] >= CU_LIBRARY_NUM_OPTIONS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    CUresult result = gf_jit_options(numJitOptions, jitOptions, jitOptionsValues, &log);
    result = result == CUDA_SUCCESS ? gf_image_load(GF_HANDLE_LIBRARY, code, &log, &handle) : result;
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
    CUresult result =
        library == NULL || fileName == NULL ? CUDA_ERROR_INVALID_VALUE : gf_file_read(fileName, &data, &size);
    if (result == CUDA_SUCCESS) {
        result = gf_cuLibraryLoadData(library, data, jitOptions, jitOptionsValues, numJitOptions,
                                      libraryOptions, libraryOptionValues, numLibraryOptions);
        free(data);
    }
    return result;
}
