/* What generated functions of the simulated device ask of it, in a driver that is nothing but these. */
#include "driver_interop/error_log.h"
#include "needs.h"
#include "refused.h"

void gf_error_log_add(const char *function, CUresult result) {
}

CUresult sim_may(enum sim_needs needs) {
    return CUDA_SUCCESS;
}

CUresult sim_may_capture_unsafe(void) {
    return CUDA_SUCCESS;
}

CUresult sim_may_capture_copy(CUstream stream) {
    return CUDA_SUCCESS;
}

CUresult sim_may_capture_stream(CUstream stream) {
    return CUDA_SUCCESS;
}

CUresult sim_refuse_unless(bool valid) {
    return CUDA_SUCCESS;
}

CUresult sim_refuse_device(CUdevice ordinal) {
    return CUDA_SUCCESS;
}

CUresult sim_refuse_stream(CUstream stream) {
    return CUDA_SUCCESS;
}
