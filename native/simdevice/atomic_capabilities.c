/* Which atomic operations a link carries. */
#include "device.h"
#include "refused.h"

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice dev) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(capabilities && operations && count > 0);
    SIM_TRY(sim_refuse_device(dev));
    for (unsigned i = 0; i < count; i++)
        SIM_REQUIRE((unsigned)operations[i] < CU_ATOMIC_OPERATION_MAX);
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = 0; /* of 8.0 on PCIe: none that the link carries */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
    SIM_TRY(sim_enter());
    SIM_REQUIRE(capabilities && operations && count > 0);
    SIM_TRY(sim_refuse_device(srcDevice));
    SIM_TRY(sim_refuse_device(dstDevice));
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
