/* Names and descriptions of the results. */
#include "sim.h"
#include "gpuferry/results.h"

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
#define RESULT(name, text) {name, #name, text},
    GF_RESULTS(RESULT)
#undef RESULT
};

CUresult cuGetErrorName(CUresult error, const char **name) {
    SIM_REQUIRE(name);
    for (size_t i = 0; i < SIM_COUNT(results); i++) {
        if (results[i].result == error) {
            *name = results[i].name;
            return CUDA_SUCCESS;
        }
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    SIM_REQUIRE(text);
    for (size_t i = 0; i < SIM_COUNT(results); i++) {
        if (results[i].result == error) {
            *text = results[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
