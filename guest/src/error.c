#include "functions.h"
#include "gpuferry/results.h"

#define NAME(name, text)                                                                                     \
    case name:                                                                                               \
        return #name;
#define TEXT(name, text)                                                                                     \
    case name:                                                                                               \
        return text;

static const char *result_name(CUresult error) {
    switch (error) { GF_RESULTS(NAME) }
    return NULL;
}

static const char *result_text(CUresult error) {
    switch (error) { GF_RESULTS(TEXT) }
    return NULL;
}

CUresult gf_cuGetErrorName(CUresult error, const char **pStr) {
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = result_name(error);
    return *pStr == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gf_cuGetErrorString(CUresult error, const char **pStr) {
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = result_text(error);
    return *pStr == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
