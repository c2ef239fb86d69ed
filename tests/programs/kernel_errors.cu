// What ends a kernel, each kind with its error, which stays until the device is reset; then it works again.
//
// device: sim (a GPU hangs in a deadlock, and notices less)
#include <cassert>
#include <cooperative_groups.h>

#include "check.h"

__device__ int sink;
__constant__ int constants[16];
typedef int (*function)(int);

struct Base {
    __device__ virtual int of(int x) {
        return x + 1;
    }
};

__device__ __noinline__ int deeper(int n) {
    volatile int frame[64];
    frame[n & 63] = n;
    int below = deeper(n + 1);
    return below + frame[n & 63];
}

enum Kind {
    NULL_STORE,
    WILD_LOAD,
    BEHIND_ALLOCATIONS,
    MISALIGNED_GLOBAL,
    MISALIGNED_SHARED,
    MISALIGNED_LOCAL,
    MISALIGNED_ATOMIC,
    SHARED_LOAD,
    SHARED_STORE,
    SHARED_ATOMIC,
    LOCAL_LOAD,
    CONSTANT_LOAD,
    CONSTANT_STORE,
    NO_TEXTURE,
    NO_SURFACE,
    SURFACE_EDGE,
    NO_FUNCTION,
    NO_OBJECT,
    NOT_OF_THE_HEAP,
    FREED_TWICE,
    HEAP_FULL,
    STACK_FULL,
    ALLOCA_LARGE,
    TRAP,
    ASSERTION,
    NO_GRID_GROUP,
    DEADLOCK,
    KINDS
};

// `zero` is 0, which the compiler does not know.
__global__ void fail(Kind kind, char *memory, long long zero, cudaSurfaceObject_t surface) {
    __shared__ int shared[64];
    volatile int local[32];
    for (int i = 0; i < 32; i++)
        local[i] = i;
    switch (kind) {
    case NULL_STORE:
        *(volatile int *)zero = 1;
        break;
    case WILD_LOAD:
        sink = *(volatile int *)(0x123456789000 + zero);
        break;
    case BEHIND_ALLOCATIONS:
        ((volatile char *)memory)[zero + (64 << 20)] = 1;
        break;
    case MISALIGNED_GLOBAL:
        *(volatile long long *)(memory + zero + 4) = 1;
        break;
    case MISALIGNED_SHARED:
        *(volatile int *)((char *)shared + zero + 2) = 1;
        break;
    case MISALIGNED_LOCAL:
        *(volatile int *)((char *)local + zero + 1) = 1;
        break;
    case MISALIGNED_ATOMIC:
        atomicAdd((unsigned long long *)(memory + zero + 4), 1ull);
        break;
    case SHARED_LOAD:
        sink = ((volatile int *)shared)[zero + (1 << 20)];
        break;
    case SHARED_STORE:
        shared[zero + threadIdx.x + (1 << 18)] = 1;
        break;
    case SHARED_ATOMIC:
        atomicAdd(shared + zero + (1 << 18), 1);
        break;
    case LOCAL_LOAD:
        sink = local[zero + (1ll << 40)];
        break;
    case CONSTANT_LOAD:
        sink = constants[zero + (1 << 24)];
        break;
    case CONSTANT_STORE:
        *(volatile int *)(zero ? (int *)memory : constants) = 3;
        break;
    case NO_TEXTURE:
        sink = tex2D<float>((cudaTextureObject_t)(zero + 12345), 1, 1);
        break;
    case NO_SURFACE:
        sink = surf2Dread<int>((cudaSurfaceObject_t)(zero + 999), 0, 0);
        break;
    case SURFACE_EDGE:
        surf2Dwrite(1, surface, 4000, 3, cudaBoundaryModeTrap);
        break;
    case NO_FUNCTION:
        sink = ((function)(zero + 0x1234))(3);
        break;
    case NO_OBJECT:
        sink = ((Base *)memory)->of(3);
        break;
    case NOT_OF_THE_HEAP:
        free(memory);
        break;
    case FREED_TWICE: {
        void *once = malloc(16);
        free(once);
        free(once);
        break;
    }
    case HEAP_FULL:
        while (volatile char *more = (volatile char *)malloc(1 << 20))
            *more = 1;
        *(volatile char *)malloc(1 << 20) = 1;
        break;
    case STACK_FULL:
        sink = deeper(0);
        break;
    case ALLOCA_LARGE: {
        volatile char *large = (volatile char *)alloca(zero + (64 << 20));
        large[0] = 1;
        sink = large[100];
        break;
    }
    case TRAP:
        __trap();
        break;
    case ASSERTION:
        assert(zero != 0);
        break;
    case NO_GRID_GROUP:
        cooperative_groups::this_grid().sync();
        break;
    case DEADLOCK:
        if (threadIdx.x < 32)
            asm volatile("bar.sync 1, 64;");
        else
            asm volatile("bar.sync 2, 64;");
        break;
    default:
        sink = (int)zero;
    }
}

static cudaError_t wanted(int kind) {
    switch (kind) {
    case MISALIGNED_GLOBAL:
    case MISALIGNED_SHARED:
    case MISALIGNED_LOCAL:
    case MISALIGNED_ATOMIC:
        return cudaErrorMisalignedAddress;
    case STACK_FULL:
    case ALLOCA_LARGE:
        return cudaErrorHardwareStackError;
    case SURFACE_EDGE:
    case TRAP:
    case NO_GRID_GROUP:
    case DEADLOCK:
        return cudaErrorLaunchFailure;
    case ASSERTION:
        return cudaErrorAssert;
    default:
        return cudaErrorIllegalAddress;
    }
}

static void ends(int kind, cudaError_t got) {
    check_result("a wait", cudaGetErrorName(got), cudaGetErrorName(wanted(kind)));
}

static cudaSurfaceObject_t small_surface() {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    resource.resType = cudaResourceTypeArray;
    RT_OK(cudaMallocArray(&resource.res.array.array, &format, 16, 16, cudaArraySurfaceLoadStore));
    RT_OK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

int main() {
    for (int kind = 0; kind < KINDS; kind++) {
        char *memory;
        int value = 0;
        printf("kind %d\n", kind);
        RT_OK(cudaMalloc(&memory, 1 << 20));
        RT_OK(cudaMemset(memory, 0, 1 << 20));
        cudaSurfaceObject_t surface = small_surface();
        fail<<<kind % 2 ? 8 : 1, 64>>>((Kind)kind, memory, 0, surface);
        ends(kind, cudaDeviceSynchronize());
        ends(kind, cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
        RT_CALL(cudaDeviceReset());
        RT_CALL(cudaGetLastError());
        RT_OK(cudaMalloc(&memory, sizeof value));
        RT_OK(cudaMemset(memory, 1, sizeof value));
        fail<<<1, 64>>>(KINDS, memory, 0, 0);
        RT_OK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
        EXPECT(value == 0x01010101);
        RT_CALL(cudaDeviceReset());
    }
    return check_failed;
}
