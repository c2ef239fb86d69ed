#include "refused.h"
#include "device.h"
#include "stream.h"

CUresult sim_refuse_unless(bool valid) {
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_refuse_device(CUdevice ordinal) {
    return sim_device_at(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_refuse_stream(CUstream handle) {
    struct sim_stream *stream;
    SIM_TRY(sim_stream_acquire(handle, &stream));
    sim_release(stream);
    return CUDA_SUCCESS;
}
