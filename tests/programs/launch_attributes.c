// Every launch attribute by itself: what a launch says to it at once, whether the kernel ran, and what came
// later.
#include "driver.h"

enum { THREADS = 64 };

static const struct {
    const char *name;
    CUlaunchAttribute attribute;
} cases[] = {
    {"ignore", {.id = CU_LAUNCH_ATTRIBUTE_IGNORE}},
    {"access policy window", {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW}},
    {"not cooperative", {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE}},
    {"cluster of one block", {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}}},
    {"cluster of two blocks", {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}}},
    {"cluster of none", {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 0, 1}}},
    {"cluster scheduling", {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE}},
    {"stream serialization", {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}},
    {"priority", {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}},
    {"memory domain", {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}},
    {"carveout",
     {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
      .value.sharedMemCarveout = CU_SHAREDMEM_CARVEOUT_MAX_L1}},
    {"nvlink scheduling", {.id = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING}},
    {"portable cluster", {.id = CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE}},
    {"shared memory mode", {.id = CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE}},
    {"no policy", {.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, .value.syncPolicy = 0}},
    {"no cluster scheduling",
     {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
      .value.clusterSchedulingPolicyPreference = 77}},
    {"no memory domain", {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, .value.memSyncDomain = 77}},
    {"no cluster mode",
     {.id = CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE, .value.portableClusterSizeMode = 77}},
    {"no shared memory mode", {.id = CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE, .value.sharedMemoryMode = 77}},
    {"unknown", {.id = (CUlaunchAttributeID)1000}},
};

int main(void) {
    start();
    CUfunction affine = kernel("affine");
    CUdeviceptr data = allocate(THREADS * sizeof(unsigned));
    unsigned count = THREADS, factor = 1, term = 1, values[THREADS], launched = 0;
    OK(cuMemsetD32(data, 0, THREADS));
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUlaunchAttribute attribute = cases[i].attribute;
        CUlaunchConfig configuration = {1, 1, 1, THREADS, 1, 1, 0, NULL, &attribute, 1};
        CUresult at_once =
            cuLaunchKernelEx(&configuration, affine, (void *[]){&data, &count, &factor, &term}, NULL);
        CUresult later = cuCtxSynchronize();
        launched += at_once == CUDA_SUCCESS;
        OK(cuMemcpyDtoH(values, data, sizeof values));
        printf("%s: %d, later %d, launches so far %u\n", cases[i].name, at_once, later, values[THREADS - 1]);
        EXPECT(values[0] == launched && values[THREADS - 1] == launched);
        EXPECT(later == CUDA_SUCCESS);
    }
    EXPECT(launched > 0);
    return check_failed;
}
