/* What one device is to another. */
#include "channel.h"
#include "context.h"
#include "freeing.h"
#include "functions.h"
#include "gpuferry/messages.h"

CUresult gf_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    if (!gf_is_device(dev) || !gf_is_device(peerDev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (canAccessPeer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *canAccessPeer = (int)gf_session.links[dev][peerDev].can_access;
    return CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                    CUdevice dstDevice) {
    if (value != NULL && (!gf_is_device(srcDevice) || !gf_is_device(dstDevice) || srcDevice == dstDevice)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (value == NULL || (unsigned)attrib >= GF_LINK_ATTRIBUTE_COUNT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int32_t known = gf_session.links[srcDevice][dstDevice].attributes[attrib];
    *value = known < 0 ? *value : known;
    return known < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gf_cuDeviceGetP2PAtomicCapabilities(unsigned *capabilities, const CUatomicOperation *operations,
                                             unsigned count, CUdevice srcDevice, CUdevice dstDevice) {
    if (capabilities == NULL || operations == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!gf_is_device(srcDevice) || !gf_is_device(dstDevice) || srcDevice == dstDevice) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)operations[i] >= CU_ATOMIC_OPERATION_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const int32_t *attributes = gf_session.links[srcDevice][dstDevice].attributes;
    bool native = attributes[CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED] > 0;
    for (unsigned i = 0; i < count; i++) {
        capabilities[i] = native ? CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                                       CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 |
                                       CU_ATOMIC_CAPABILITY_SCALAR_64
                                 : 0;
    }
    return CUDA_SUCCESS;
}

/* The driver knows what is enabled, and says what is wrong with it. */
static CUresult ask(const struct gf_context *peer, CUcontext handle, bool enable) {
    const struct gf_context *current = gf_context_current();
    struct gf_req_sessionPeerAccess request = {.peer = (uint64_t)handle, .enable = enable};
    if (peer->device == current->device) {
        return enable ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    gf_access_begins();
    return gf_call_struct(GF_OP_sessionPeerAccess, &request, sizeof request, NULL, 0);
}

CUresult gf_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned Flags) {
    const struct gf_context *peer = gf_context_find(peerContext);
    CUresult wrong = Flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    bool other = peer != NULL && peer != gf_context_current();
    return Flags == 0 && other ? ask(peer, peerContext, true) : wrong;
}

CUresult gf_cuCtxDisablePeerAccess(CUcontext peerContext) {
    const struct gf_context *peer = gf_context_find(peerContext);
    return peer == NULL ? CUDA_ERROR_INVALID_CONTEXT : ask(peer, peerContext, false);
}
