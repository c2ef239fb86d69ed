// Managed and mapped memory as programs of the runtime use them.
#include <cstdio>
#include <cuda_runtime.h>

#include "check.h"

struct list {
    list *next;
    int value;
};

__global__ void double_all(list *head) {
    for (; head; head = head->next)
        head->value *= 2;
}

__managed__ int counted = 3;
__managed__ list kept[2];

__global__ void count(int by) {
    counted += by;
    kept[0] = {&kept[1], kept[1].value + by};
}

static void variables() {
    EXPECT(counted == 3); // before the first call of the runtime
    counted = 10;
    kept[1].value = 7;
    count<<<1, 1>>>(5);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(counted == 15 && kept[0].value == 12 && kept[0].next == &kept[1]);
    counted++;
    double_all<<<1, 1>>>(kept);
    count<<<1, 1>>>(1);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(counted == 17 && kept[1].value == 14 && kept[0].value == 15);
}

int main() {
    variables();
    list *nodes = nullptr;
    int *mapped = nullptr, *on_device = nullptr, wrong = 0;
    RT_OK(cudaMallocManaged(&nodes, 100 * sizeof *nodes));
    for (int i = 0; i < 100; i++)
        nodes[i] = {i ? &nodes[i - 1] : nullptr, i};
    double_all<<<1, 1>>>(&nodes[99]);
    RT_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 100; i++)
        wrong += nodes[i].value != 2 * i;
    EXPECT(wrong == 0);
    cudaPointerAttributes attributes;
    RT_OK(cudaPointerGetAttributes(&attributes, nodes));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == nodes);
    RT_OK(cudaHostAlloc(&mapped, 8, cudaHostAllocMapped));
    RT_OK(cudaHostGetDevicePointer(&on_device, mapped, 0));
    mapped[0] = 5;
    RT_OK(cudaMemcpy(&nodes[3].value, on_device, sizeof(int), cudaMemcpyDefault));
    EXPECT(nodes[3].value == 5);
    RT_OK(cudaFreeHost(mapped));
    RT_OK(cudaFree(nodes));
    return check_failed;
}
