// The runtime on two devices: cudaSetDevice, a thread for each device, copies between them, peer access and
// events.
//
// suite: devices
#include <cuda_runtime.h>
#include <thread>

#include "check.h"

enum { COUNT = 1 << 14, BYTES = COUNT * 4 };

__global__ void scale(unsigned *data, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * factor + i;
}

static unsigned host[2][COUNT], back[COUNT];
static unsigned *memory[2];

static void work(int device) {
    int current = -1;
    RT_QUIET(cudaSetDevice(device));
    RT_QUIET(cudaGetDevice(&current));
    RT_QUIET(cudaMalloc((void **)&memory[device], BYTES));
    for (unsigned k = 0; k < COUNT; k++)
        host[device][k] = k + (unsigned)device;
    RT_QUIET(cudaMemcpy(memory[device], host[device], BYTES, cudaMemcpyHostToDevice));
    for (unsigned round = 0; round < 10; round++)
        scale<<<COUNT / 256, 256>>>(memory[device], 3 + (unsigned)device);
    RT_QUIET(cudaDeviceSynchronize());
    for (unsigned round = 0; round < 10; round++)
        for (unsigned k = 0; k < COUNT; k++)
            host[device][k] = host[device][k] * (3 + (unsigned)device) + k;
    if (current != device)
        check_failed = 1;
}

static int same(const unsigned *address, const unsigned *wanted) {
    RT_QUIET(cudaMemcpy(back, address, BYTES, cudaMemcpyDefault));
    return memcmp(back, wanted, BYTES) == 0;
}

int main() {
    int count = 0, can = -1, value = -1;
    cudaDeviceProp properties[2];
    cudaPointerAttributes attributes;
    RT_OK(cudaGetDeviceCount(&count));
    EXPECT(count == 2);
    RT_FAILS(cudaErrorInvalidDevice, cudaSetDevice(2));
    RT_FAILS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    for (int i = 0; i < 2; i++)
        RT_OK(cudaGetDeviceProperties(&properties[i], i));
    EXPECT(memcmp(&properties[0].uuid, &properties[1].uuid, sizeof properties[0].uuid) != 0);
    EXPECT(properties[0].pciBusID != properties[1].pciBusID);
    std::thread first(work, 0), second(work, 1);
    first.join();
    second.join();
    EXPECT(!check_failed);
    for (int i = 0; i < 2; i++) {
        RT_OK(cudaPointerGetAttributes(&attributes, memory[i]));
        EXPECT(attributes.device == i && attributes.type == cudaMemoryTypeDevice);
        EXPECT(same(memory[i], host[i]));
    }
    RT_OK(cudaSetDevice(0));
    RT_OK(cudaMemcpyPeer(memory[1], 1, memory[0], 0, BYTES));
    RT_OK(cudaSetDevice(1));
    EXPECT(same(memory[1], host[0]));
    RT_FAILS(cudaErrorInvalidDevice, cudaMemcpyPeer(memory[1], 2, memory[0], 0, BYTES));
    RT_OK(cudaDeviceCanAccessPeer(&can, 1, 0));
    EXPECT(can == 1);
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceCanAccessPeer(NULL, 1, 0));
    RT_FAILS(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&can, 1, 2));
    RT_OK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 1, 0));
    EXPECT(value == 1);
    RT_FAILS(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(2, 0));
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceEnablePeerAccess(0, 1));
    RT_FAILS(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(0));
    RT_OK(cudaDeviceEnablePeerAccess(0, 0));
    RT_FAILS(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(0, 0));
    // device 1 on the memory of device 0, behind what that is at
    cudaEvent_t done;
    cudaStream_t stream;
    RT_OK(cudaSetDevice(0));
    RT_OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    scale<<<COUNT / 256, 256>>>(memory[0], 5);
    RT_OK(cudaEventRecord(done, 0));
    RT_OK(cudaSetDevice(1));
    RT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RT_OK(cudaStreamWaitEvent(stream, done, 0));
    scale<<<COUNT / 256, 256, 0, stream>>>(memory[0], 7);
    RT_OK(cudaStreamSynchronize(stream));
    for (unsigned k = 0; k < COUNT; k++)
        host[0][k] = (host[0][k] * 5 + k) * 7 + k;
    EXPECT(same(memory[0], host[0]));
    RT_FAILS(cudaErrorInvalidResourceHandle, cudaEventRecord(done, stream));
    RT_OK(cudaDeviceDisablePeerAccess(0));
    RT_FAILS(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(0));
    RT_OK(cudaDeviceReset());
    RT_OK(cudaSetDevice(0));
    EXPECT(same(memory[0], host[0]));
    RT_OK(cudaFree(memory[0]));
    return check_failed;
}
