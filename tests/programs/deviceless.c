// What a driver answers without its device (core dumps, logs, notifications), and what this one does not
// have: each refusal is CUDA's own, and comes after the arguments were looked at.
//
// device: sim   a GPU's driver has some of them
#include <stdbool.h>

#include "driver.h"

static void CUDA_CB logged(void *data, CUlogLevel level, char *message, size_t length) {
    (void)data, (void)level, (void)message, (void)length;
}

static void notified(CUasyncNotificationInfo *information, void *data, CUasyncCallbackHandle handle) {
    (void)information, (void)data, (void)handle;
}

int main(void) {
    size_t size = sizeof(bool);
    bool on = true, off = false;
    CUlogsCallbackHandle logs = NULL;
    CUasyncCallbackHandle notification = NULL;
    FAILS(CUDA_ERROR_NOT_INITIALIZED,
          cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuLogsRegisterCallback(logged, NULL, &logs));
    start();
    OK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &off, &size));
    EXPECT(size == 1 && !off);
    OK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &size));
    OK(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &off, &size));
    EXPECT(off);
    char name[64] = "core.%h", back[1024] = "";
    size = strlen(name);
    OK(cuCoredumpSetAttribute(CU_COREDUMP_FILE, name, &size));
    size = sizeof back;
    OK(cuCoredumpGetAttribute(CU_COREDUMP_FILE, back, &size));
    EXPECT(strcmp(back, name) == 0);
    size = 0;
    OK(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, NULL, &size));
    EXPECT(size == sizeof(unsigned));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute((CUcoredumpSettings)99, back, &size));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCoredumpGetAttribute(CU_COREDUMP_FILE, back, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute(CU_COREDUMP_FILE, NULL, &size));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCoredumpSetAttribute(CU_COREDUMP_PIPE, name, &size));

    OK(cuLogsRegisterCallback(logged, NULL, &logs));
    OK(cuLogsUnregisterCallback(logs));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback(logs));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsRegisterCallback(NULL, NULL, &logs));
    CUlogIterator iterator = 5;
    OK(cuLogsCurrent(&iterator, 0));
    size = sizeof back;
    OK(cuLogsDumpToMemory(&iterator, back, &size, 0));
    EXPECT(size == 0 && back[0] == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(NULL, 0));
    OK(cuDeviceRegisterAsyncNotification(device, notified, NULL, &notification));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback((CUlogsCallbackHandle)notification));
    OK(cuDeviceUnregisterAsyncNotification(device, notification));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceUnregisterAsyncNotification(99, notification));

    CUmulticastObjectProp multicast = {.numDevices = 1, .size = 2 << 20};
    CUmemGenericAllocationHandle handle = 0;
    size_t granularity = 7;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&handle, &multicast));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastCreate(NULL, &multicast));
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          cuMulticastGetGranularity(&granularity, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(handle, device));
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD};
    CUexternalMemory external = NULL;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&external, &description));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(NULL, &description));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(external));
    CUgraphicsResource resource = NULL;
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphicsUnregisterResource(resource));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphicsMapResources(1, &resource, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphicsMapResources(0, &resource, NULL));
    CUprocessState state;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(-1, &state));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessGetState(1, &state));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessLock(1, NULL));
    CUlogicalEndpointId endpoint = 0;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuLogicalEndpointIdReserve(&endpoint, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogicalEndpointDestroy(endpoint));
    char luid[8];
    unsigned mask, able = 7;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuDeviceGetLuid(luid, &mask, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetLuid(luid, &mask, 99));
    CUatomicOperation add = CU_ATOMIC_OPERATION_INTEGER_ADD, bad = CU_ATOMIC_OPERATION_MAX;
    OK(cuDeviceGetHostAtomicCapabilities(&able, &add, 1, device));
    EXPECT(able == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(&able, &bad, 1, device));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(&able, NULL, 1, device));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAtomicCapabilities(&able, &add, 1, device, device));

    // Nor has it other devices' buffers, an engine that decompresses, or graphics to work beside.
    int descriptor = -1;
    size_t failed = 0;
    CUmemDecompressParams packed = {0};
    CUstreamCigCaptureParams beside = {0};
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          cuMemGetHandleForAddressRange(&descriptor, 0, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetHandleForAddressRange(NULL, 0, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemBatchDecompressAsync(&packed, 1, 0, &failed, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemBatchDecompressAsync(NULL, 1, 0, &failed, NULL));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuStreamBeginCaptureToCig(NULL, &beside));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuStreamEndCaptureToCig(NULL));
    // No semaphore can be imported, so no node of a graph has one.
    CUgraph graph;
    CUgraphNode node;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal = {0};
    CUDA_EXT_SEM_WAIT_NODE_PARAMS wait = {0};
    OK(cuGraphCreate(&graph, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddExternalSemaphoresSignalNode(&node, graph, NULL, 0, &signal));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, &wait));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExternalSemaphoresSignalNodeGetParams(node, &signal));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExternalSemaphoresWaitNodeSetParams(node, &wait));
    OK(cuGraphDestroy(graph));

    CUdeviceptr counter = allocate(4);
    unsigned seen = 0;
    OK(cuMemsetD32(counter, 0, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&seen, counter, sizeof seen));
    EXPECT(seen == 1);
    return check_failed;
}
