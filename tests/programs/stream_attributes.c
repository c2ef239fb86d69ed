// Attributes of streams: what they begin as, what is set is read back, a copy takes all of them, and what a
// stream does not have is refused.
//
// compile: -Wno-deprecated-declarations
#include "driver.h"

int main(void) {
    start();
    CUstream one, other;
    CUstreamAttrValue value, again;
    memset(&value, 0xff, sizeof value);
    OK(cuStreamCreateWithPriority(&one, CU_STREAM_NON_BLOCKING, -1));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    const CUsynchronizationPolicy first =
        value.syncPolicy; // NVIDIA's driver does not say CU_SYNC_POLICY_AUTO
    OK(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EXPECT(value.priority == -1);
    OK(cuStreamGetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EXPECT(value.priority == 0);
    OK(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
    EXPECT(value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT);

    value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
    OK(cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
    OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == first);
    CUdeviceptr data = allocate(1 << 20);
    memset(&value, 0, sizeof value);
    value.accessPolicyWindow = (CUaccessPolicyWindow){.base_ptr = (void *)(uintptr_t)data,
                                                      .num_bytes = 1 << 20,
                                                      .hitRatio = 0.5f,
                                                      .hitProp = CU_ACCESS_PROPERTY_PERSISTING,
                                                      .missProp = CU_ACCESS_PROPERTY_STREAMING};
    OK(cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    OK(cuStreamCopyAttributes(other, one));
    OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &again));
    EXPECT(again.accessPolicyWindow.num_bytes == 1 << 20 && again.accessPolicyWindow.hitRatio == 0.5f);
    OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);

    value.accessPolicyWindow.hitRatio = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    value.syncPolicy = (CUsynchronizationPolicy)77;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(one, (CUstreamAttrID)1000, &value));

    unsigned seen = 0;
    OK(cuMemsetD32(data, 0, 1));
    OK(cuCtxSynchronize());
    OK(LAUNCH(kernel("count_up"), 1, 1, one, &data));
    OK(cuStreamSynchronize(one));
    OK(cuMemcpyDtoH(&seen, data, sizeof seen));
    EXPECT(seen == 1);
    OK(cuStreamDestroy(one));

    // contexts of CUDA 2: each attach keeps a context until its detach
    CUcontext made, attached = NULL;
    unsigned version;
    OK(cuCtxCreate(&made, NULL, 0, device));
    OK(cuCtxAttach(&attached, 0));
    EXPECT(attached == made);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(&attached, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(NULL, 0));
    OK(cuCtxDetach(made));
    OK(cuCtxSynchronize());
    OK(cuCtxDetach(made));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(made));
    CALL(cuCtxGetApiVersion(made, &version));

    // of a default stream they are its context's
    CUcontext own;
    value.syncPolicy = CU_SYNC_POLICY_SPIN;
    OK(cuStreamSetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuCtxCreate(&own, NULL, 0, device));
    OK(cuStreamGetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == first);
    OK(cuCtxDestroy(own));
    OK(cuStreamGetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == CU_SYNC_POLICY_SPIN);
    OK(cuDevicePrimaryCtxReset(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &again));
    EXPECT(again.syncPolicy == first);
    return check_failed;
}
