/* What this device does not have: multicast, logical endpoints, cliques, other APIs' memory and semaphores,
 * graphics, checkpoints by the driver. Each says so as a driver does on such a machine, after its arguments.
 */
#include "context.h"
#include "device.h"

#define NEEDS_DRIVER SIM_TRY(sim_enter())
#define NEEDS_CONTEXT                                                                                        \
    do {                                                                                                     \
        struct sim_context *context_;                                                                        \
        SIM_TRY(sim_context_current(&context_));                                                             \
    } while (0)
#define NEEDS_DEVICE(ordinal)                                                                                \
    do {                                                                                                     \
        if (!sim_device_at(ordinal))                                                                         \
            return CUDA_ERROR_INVALID_DEVICE;                                                                \
    } while (0)

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev) {
    NEEDS_DRIVER;
    SIM_REQUIRE(luid);
    SIM_REQUIRE(deviceNodeMask);
    NEEDS_DEVICE(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetNvSciSyncAttributes(void *nvSciSyncAttrList, CUdevice dev, int flags) {
    NEEDS_DRIVER;
    SIM_REQUIRE(nvSciSyncAttrList);
    NEEDS_DEVICE(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop) {
    NEEDS_DRIVER;
    SIM_REQUIRE(mcHandle);
    SIM_REQUIRE(prop);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                               unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr,
                             size_t size, unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                                CUdeviceptr memptr, size_t size, unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option) {
    NEEDS_DRIVER;
    SIM_REQUIRE(granularity);
    SIM_REQUIRE(prop);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetFabricClusterUuid(CUuuid *uuid, CUdevice dev) {
    NEEDS_DRIVER;
    SIM_REQUIRE(uuid);
    NEEDS_DEVICE(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetCliqueCount(size_t *count, CUdevice dev) {
    NEEDS_DRIVER;
    SIM_REQUIRE(count);
    NEEDS_DEVICE(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetCliqueInfo(CUcliqueInfo *cliqueInfo, size_t *count, CUdevice dev) {
    NEEDS_DRIVER;
    SIM_REQUIRE(count);
    NEEDS_DEVICE(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLogicalEndpointIdReserve(CUlogicalEndpointId *baseLeId, cuuint32_t count) {
    NEEDS_DRIVER;
    SIM_REQUIRE(baseLeId);
    SIM_REQUIRE(count > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLogicalEndpointIdRelease(CUlogicalEndpointId baseLeId, cuuint32_t count) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointCreate(CUlogicalEndpointId leId, const CUlogicalEndpointProp *prop) {
    NEEDS_DRIVER;
    SIM_REQUIRE(prop);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLogicalEndpointAddDevice(CUlogicalEndpointId leId, CUdevice dev) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId leId) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, void *ptr,
                                   cuuint64_t size, unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memHandle, cuuint64_t memOffset,
                                  cuuint64_t size, unsigned long long flags) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, cuuint64_t size) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointExport(void *handle, CUlogicalEndpointId leId,
                                 CUlogicalEndpointIpcHandleType handleType) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogicalEndpointImport(CUlogicalEndpointId leId, const void *handle,
                                 CUlogicalEndpointIpcHandleType handleType) {
    NEEDS_DRIVER;
    SIM_REQUIRE(handle);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLogicalEndpointGetLimits(cuuint64_t *bindAlignment, cuuint64_t *maxSize,
                                    const CUlogicalEndpointProp *prop) {
    NEEDS_DRIVER;
    SIM_REQUIRE(prop);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLogicalEndpointQuery(CUlogicalEndpointId leId, cuuint32_t count, int *queryStatus) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(extMem_out);
    SIM_REQUIRE(memHandleDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(devPtr);
    SIM_REQUIRE(bufferDesc);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(mipmap);
    SIM_REQUIRE(mipmapDesc);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *extSem_out,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *semHandleDesc) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(extSem_out);
    SIM_REQUIRE(semHandleDesc);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsUnregisterResource(CUgraphicsResource resource) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsSubResourceGetMappedArray(CUarray *pArray, CUgraphicsResource resource,
                                             unsigned int arrayIndex, unsigned int mipLevel) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray *pMipmappedArray,
                                                   CUgraphicsResource resource) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsResourceGetMappedPointer(CUdeviceptr_v1 *pDevPtr, unsigned int *pSize,
                                            CUgraphicsResource resource) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *pDevPtr, size_t *pSize,
                                               CUgraphicsResource resource) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsResourceSetMapFlags(CUgraphicsResource resource, unsigned int flags) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsResourceSetMapFlags_v2(CUgraphicsResource resource, unsigned int flags) {
    NEEDS_CONTEXT;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsMapResources(unsigned int count, CUgraphicsResource *resources, CUstream hStream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(count > 0);
    SIM_REQUIRE(resources);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphicsUnmapResources(unsigned int count, CUgraphicsResource *resources, CUstream hStream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(count > 0);
    SIM_REQUIRE(resources);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray,
                                         unsigned int numExtSems, CUstream stream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(extSemArray);
    SIM_REQUIRE(paramsArray);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray,
                                       unsigned int numExtSems, CUstream stream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(extSemArray);
    SIM_REQUIRE(paramsArray);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    SIM_REQUIRE(tid);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    SIM_REQUIRE(state);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCheckpointOperationComplete(CUcheckpointOperationHandle handle) {
    NEEDS_DRIVER;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
    NEEDS_DRIVER;
    SIM_REQUIRE(pid > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice dev) {
    NEEDS_DRIVER;
    SIM_REQUIRE(capabilities && operations && count > 0);
    NEEDS_DEVICE(dev);
    for (unsigned i = 0; i < count; i++)
        SIM_REQUIRE((unsigned)operations[i] < CU_ATOMIC_OPERATION_MAX);
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = 0; /* of 8.0 on PCIe: none that the link carries */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
    NEEDS_DRIVER;
    SIM_REQUIRE(capabilities && operations && count > 0);
    NEEDS_DEVICE(srcDevice);
    NEEDS_DEVICE(dstDevice);
    if (srcDevice == dstDevice)
        return CUDA_ERROR_INVALID_DEVICE;
    for (unsigned i = 0; i < count; i++)
        SIM_REQUIRE((unsigned)operations[i] < CU_ATOMIC_OPERATION_MAX);
    const CUatomicOperationCapability all = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                                            CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 |
                                            CU_ATOMIC_CAPABILITY_SCALAR_64;
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = all;
    return CUDA_SUCCESS;
}

CUresult cuFabricCpyBatchAsync(size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList, unsigned long long flags,
                               CUstream hStream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(numOps > 0 && opList && flags == 0 && hStream);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
    NEEDS_CONTEXT;
    SIM_REQUIRE(mapInfoList && count > 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}
