// Kernels that launch kernels: in order within a stream, with parameters of every size and shared memory of
// their own, through pointers to them, many levels deep, the tail after all else, and everything before what
// the host has put behind. What cannot be launched is an error of the launch.
//
// compile: -rdc=true
#include "check.h"

enum { CHILDREN = 40, LEVELS = 12, CELLS = 1024 };

struct parameters {
    char letter;
    double scale;
    int3 add;
};

__global__ void scale_by_two(int *cells) {
    cells[threadIdx.x + blockIdx.x * blockDim.x] *= 2;
}

__global__ void add_parameters(struct parameters given, int *cells, short more) {
    extern __shared__ int turned[];
    turned[threadIdx.x] = cells[threadIdx.x];
    __syncthreads();
    const int mirrored = turned[blockDim.x - 1 - threadIdx.x];
    cells[threadIdx.x] = (int)(mirrored * given.scale) + given.letter + given.add.z + more;
}

// In one stream the second child finds what the first has written.
__global__ void in_order(int *cells) {
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < 64; i++)
        cells[blockIdx.x * 64 + i] = i + blockIdx.x;
    scale_by_two<<<4, 16>>>(cells + blockIdx.x * 64);
    scale_by_two<<<2, dim3(32, 1, 1)>>>(cells + blockIdx.x * 64);
    const struct parameters given = {'a', 0.5, {1, 2, 3}};
    add_parameters<<<1, 64, 64 * sizeof(int)>>>(given, cells + blockIdx.x * 64, (short)-7);
}

__global__ void count(int *counter) {
    atomicAdd(counter, 1);
}

__global__ void twice(int *counter) {
    atomicAdd(counter, 2);
}

typedef void (*kernel)(int *);
__device__ kernel chosen[] = {count, twice};

// Every thread launches, each through a pointer.
__global__ void many(int *counter) {
    chosen[threadIdx.x % 2]<<<threadIdx.x + 1, 1>>>(counter);
}

__global__ void deeper(int *reached, int level) {
    reached[level] = level + 1;
    if (level + 1 < LEVELS)
        deeper<<<1, 1>>>(reached, level + 1);
}

__global__ void endless(int *reached, int level, int *error) {
    *reached = level;
    endless<<<1, 1>>>(reached, level + 1, error);
    const cudaError_t failed = cudaGetLastError();
    if (failed != cudaSuccess)
        *error = failed;
}

__global__ void bytes(int *cells) {
    cudaMemsetAsync(cells, 1, 40 * sizeof(int));
    scale_by_two<<<1, 10>>>(cells);
    cudaMemcpyAsync(cells + 10, cells, 5 * sizeof(int) - 1, cudaMemcpyDeviceToDevice);
    scale_by_two<<<1, 5>>>(cells);
}

__global__ void note(int *log, int what) {
    log[1 + atomicAdd(log, 1)] = what;
}

__global__ void with_tail(int *log) {
    note<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 3);
    note<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 4);
    note<<<1, 1>>>(log, 1);
    note<<<1, 1>>>(log, 2);
}

__global__ void in_streams(int *counter) {
    cudaStream_t stream;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    count<<<1, 32, 0, stream>>>(counter);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(0, event, 0);
    count<<<1, 16, 0, cudaStreamFireAndForget>>>(counter);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
}

__global__ void __launch_bounds__(32) small(int *counter) {
    atomicAdd(counter, 1);
}

__global__ void wrong(int *counter, int *errors) {
    count<<<0, 1>>>(counter);
    errors[0] = cudaPeekAtLastError();
    errors[1] = cudaGetLastError();
    errors[2] = cudaGetLastError();
    count<<<1, 2048>>>(counter);
    errors[3] = cudaGetLastError();
    small<<<1, 33>>>(counter);
    errors[4] = cudaGetLastError();
    count<<<1, 1, 1 << 20>>>(counter);
    errors[5] = cudaGetLastError();
    count<<<1, 1>>>(counter);
    errors[6] = cudaGetLastError();
}

__global__ void stops() {
    __trap();
}

__global__ void launch_what_stops(int *counter) {
    stops<<<1, 1>>>();
    count<<<1, 1>>>(counter);
}

int main() {
    int *cells, host[CELLS];
    RT_OK(cudaMallocManaged(&cells, sizeof host));
    RT_OK(cudaMemset(cells, 0, sizeof host));
    in_order<<<3, 32>>>(cells);
    RT_OK(cudaMemcpy(host, cells, sizeof host, cudaMemcpyDeviceToHost));
    int different = 0;
    for (int i = 0; i < 3 * 64; i++)
        different += host[i] != (63 - i % 64 + i / 64) * 2 + 'a' + 3 - 7;
    EXPECT(different == 0);

    RT_OK(cudaMemset(cells, 0, sizeof host));
    many<<<1, CHILDREN>>>(cells);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(cells[0] == 20 * 20 + 2 * 20 * 21);

    deeper<<<1, 1>>>(cells, 0);
    RT_OK(cudaDeviceSynchronize());
    for (int i = 0; i < LEVELS; i++)
        different += cells[i] != i + 1;
    EXPECT(different == 0);

    RT_OK(cudaMemset(cells + 20, 3, sizeof host - 20 * sizeof(int)));
    bytes<<<1, 1>>>(cells);
    RT_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 41; i++)
        different += cells[i] != (i < 5     ? 0x04040404
                                  : i < 14  ? 0x02020202
                                  : i == 14 ? 0x01020202
                                  : i < 40  ? 0x01010101
                                            : 0x03030303);
    EXPECT(different == 0);

    RT_OK(cudaMemset(cells, 0, sizeof host));
    with_tail<<<1, 1>>>(cells);
    RT_OK(cudaMemcpy(host, cells, sizeof host, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 4 && host[1] == 1 && host[2] == 2 && host[3] == 3 && host[4] == 4);

    RT_OK(cudaMemset(cells, 0, sizeof host));
    in_streams<<<1, 1>>>(cells);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(cells[0] == 48);

    endless<<<1, 1>>>(cells, 1, cells + 1);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(cells[0] > LEVELS && cells[1] == cudaErrorLaunchMaxDepthExceeded);

    RT_OK(cudaMemset(cells, 0, sizeof host));
    wrong<<<1, 1>>>(cells, cells + 1);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(cells[0] == 1);
    EXPECT(cells[1] == cudaErrorInvalidConfiguration && cells[2] == cells[1] && cells[3] == cudaSuccess);
    EXPECT(cells[4] != cudaSuccess && cells[5] != cudaSuccess && cells[6] != cudaSuccess);
    EXPECT(cells[7] == cudaSuccess);

    launch_what_stops<<<1, 1>>>(cells);
    RT_FAILS(cudaErrorLaunchFailure, cudaDeviceSynchronize());
    return check_failed;
}
