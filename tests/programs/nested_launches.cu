// Kernels that launch kernels: in order within a stream, with parameters of every size and shared memory of
// their own, through pointers to them, many levels deep, the tail after all else, and everything before what
// the host has put behind. What cannot be launched is an error of the launch. And all else that it calls.
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

// Of use where graphs can be made for it; elsewhere it keeps nobody from running the other kernels.
__global__ void launch_graph(cudaGraphExec_t graph, int *status) {
    *status = cudaGraphLaunch(graph, cudaStreamGraphFireAndForget);
}

// So it is with nodes that device code updates.
__global__ void update_node(cudaGraphDeviceNode_t node, cudaGraphKernelNodeUpdate *updates, int *statuses) {
    statuses[0] = cudaGraphKernelNodeSetParam(node, 0, statuses);
    statuses[1] = cudaGraphKernelNodeSetEnabled(node, false);
    statuses[2] = cudaGraphKernelNodeSetGridDim(node, dim3(2, 3, 4));
    statuses[3] = cudaGraphKernelNodeUpdatesApply(updates, 1);
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

// What kernels ask, as on the host; what they take and give back; more than one row of bytes.
__global__ void asked(int *answers) {
    cudaFuncAttributes attributes;
    int *taken = NULL;
    size_t limit = 0;
    answers[0] = cudaGetDevice(&answers[1]) | cudaGetDeviceCount(&answers[2]);
    answers[0] |= cudaDeviceGetAttribute(&answers[3], cudaDevAttrMultiProcessorCount, answers[1]);
    answers[0] |= cudaOccupancyMaxActiveBlocksPerMultiprocessor(&answers[4], small, 32, 1024);
    answers[0] |= cudaFuncGetAttributes(&attributes, small);
    answers[5] = attributes.maxThreadsPerBlock;
    answers[0] |= cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize) | cudaMalloc(&taken, 64);
    answers[6] = (int)limit;
    taken[15] = 1;
    answers[0] |= cudaFree(taken);
    answers[7] = cudaDeviceGetAttribute(&answers[8], cudaDevAttrMultiProcessorCount, 1000);
    answers[9] =
        cudaGetErrorString(cudaErrorInvalidDevice)[8] == 'd' && cudaGetErrorName(cudaSuccess)[4] == 'S';
}

__global__ void boxes(char *to, const char *from) {
    cudaMemset2DAsync(to, 16, 7, 3, 2);
    cudaMemcpy2DAsync(to + 4, 16, from, 8, 2, 3, cudaMemcpyDeviceToDevice);
    const cudaPitchedPtr pitched = {to + 64, 4, 4, 4};
    cudaMemset3DAsync(pitched, 9, {3, 2, 2});
    cudaMemcpy3DParms box = {};
    box.srcPtr = {(void *)from, 8, 8, 2};
    box.srcPos = {1, 1, 0};
    box.dstPtr = {to + 128, 4, 4, 4};
    box.dstPos = {0, 1, 1};
    box.extent = {3, 1, 2};
    box.kind = cudaMemcpyDeviceToDevice;
    cudaMemcpy3DAsync(&box);
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

    asked<<<1, 1>>>(cells);
    RT_OK(cudaDeviceSynchronize());
    int device, multiprocessors, blocks;
    size_t heap;
    cudaFuncAttributes attributes;
    RT_OK(cudaGetDevice(&device));
    RT_OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    RT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 32, 1024));
    RT_OK(cudaFuncGetAttributes(&attributes, small));
    RT_OK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    // A kernel counts the devices of the machine that it runs on.
    EXPECT(cells[0] == 0 && cells[1] >= 0 && cells[1] < cells[2] && cells[3] == multiprocessors);
    EXPECT(cells[4] == blocks && cells[5] == attributes.maxThreadsPerBlock && cells[6] == (int)heap);
    EXPECT(cells[7] == cudaErrorInvalidDevice && cells[9]);

    char *bytes_of = (char *)cells, *source = bytes_of + 1024;
    RT_OK(cudaMemset(cells, 0, sizeof host));
    for (int i = 0; i < 64; i++)
        source[i] = (char)(i + 1);
    boxes<<<1, 1>>>(bytes_of, source);
    RT_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 192; i++) {
        int row = i % 64 / 16, column = i % 16, x = i % 4, y = column / 4;
        int expected = i < 64    ? (column < 3 && row < 2                  ? 7
                                    : column >= 4 && column < 6 && row < 3 ? 8 * row + column - 3
                                                                           : 0)
                       : i < 128 ? (x < 3 && y < 2 && row < 2 ? 9 : 0)
                                 : (x < 3 && y == 1 && (row == 1 || row == 2) ? 16 * (row - 1) + 10 + x : 0);
        different += bytes_of[i] != expected;
    }
    EXPECT(different == 0);

    cudaGraph_t graph;
    cudaGraphExec_t launched;
    RT_OK(cudaGraphCreate(&graph, 0));
    if (cudaGraphInstantiate(&launched, graph, cudaGraphInstantiateFlagDeviceLaunch) ==
        cudaErrorNotSupported) {
        launch_graph<<<1, 1>>>(NULL, cells);
        RT_OK(cudaDeviceSynchronize());
        EXPECT(cells[0] == cudaErrorNotSupported);
        update_node<<<1, 1>>>(NULL, NULL, cells);
        RT_OK(cudaDeviceSynchronize());
        for (int i = 0; i < 4; i++) {
            EXPECT(cells[i] == cudaErrorNotSupported);
        }
    }

    launch_what_stops<<<1, 1>>>(cells);
    RT_FAILS(cudaErrorLaunchFailure, cudaDeviceSynchronize());
    return check_failed;
}
