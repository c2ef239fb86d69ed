// Handles and pointers that name nothing any more, and pointers to nothing: an error here, each time.
//
// device: sim (NVIDIA's driver looks at memory that is free by then: it gives any error, or the process dies)
// compile: -Wno-deprecated-declarations
#include "driver.h"

static const char references[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                 ".global .texref plane;\n.global .surfref canvas;\n"
                                 ".visible .entry nothing() { ret; }\n";

static void streams_and_events(void) {
    CUstream stream, other;
    CUevent event;
    CUstreamAttrValue value;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)0x1234));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamCopyAttributes(other, stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
}

static void arrays(void) {
    CUDA_ARRAY_DESCRIPTOR flat = {16, 2, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    CUDA_TEXTURE_DESC sampler = {.flags = CU_TRSF_NORMALIZED_COORDINATES};
    CUmipmappedArray mipmap;
    CUtexObject object;
    CUtexref reference;
    CUsurfref surface;
    CUmodule code;
    CUarray array, level;
    float back[4];
    OK(cuArrayCreate(&array, &flat));
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 7));
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayDestroy(level)); // it ends with the whole
    OK(cuArrayDestroy(array));
    OK(cuMipmappedArrayDestroy(mipmap));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor(&flat, array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH(back, array, 0, 8));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor(&shape, level));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, mipmap, 0));
    resource.res.mipmap.hMipmappedArray = mipmap;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexObjectCreate(&object, &resource, &sampler, NULL));
    OK(cuTexRefCreate(&reference));
    OK(cuTexRefDestroy(reference));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(reference));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(reference, 0));
    OK(cuModuleLoadData(&code, references));
    OK(cuModuleGetTexRef(&reference, code, "plane"));
    OK(cuModuleGetSurfRef(&surface, code, "canvas"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags((CUtexref)surface, 0));
    OK(cuModuleUnload(code));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(reference, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuSurfRefSetArray(surface, array, 0));
}

static void contexts(void) {
    CUcontext own;
    CUevent event;
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_AUTO, device));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(context));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event)); // it has ended with its context
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(NULL, event, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(own));
}

// A texture whose last row is not all memory; NVIDIA's allocations go on behind what was asked for.
static void memory(void) {
    CUdeviceptr data = allocate(160 + 32), freed = allocate(1 << 20);
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    CUDA_TEXTURE_DESC sampler = {0};
    CUtexObject object;
    unsigned char back[16];
    resource.res.pitch2D.devPtr = data;
    resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = 9;
    resource.res.pitch2D.height = 2;
    resource.res.pitch2D.pitchInBytes = 160;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &sampler, NULL));
    OK(cuMemFree(freed));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(data, (void *)freed, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH((void *)freed, data, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy((CUdeviceptr)back, freed, 16));
    OK(cuMemFree(data));
}

int main(void) {
    start();
    streams_and_events();
    arrays();
    contexts();
    memory();
    expect_it_still_works();
    return check_failed;
}
