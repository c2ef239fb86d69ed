// When what a kernel printed is there: behind each call that CUDA names; what printf returns, the most
// arguments that it takes, and limits that can be set only before a kernel has used them.
#include <unistd.h>

#include "check.h"

static int own, file;

__global__ void say(int number) {
    printf("line %d\n", number);
}

__global__ void returns(int *values) {
    values[0] = printf("none\n");
    values[1] = printf("%d %s\n", 1, "two");
    values[2] = printf(nullptr);
    values[3] = printf("%5.1f|%-4d|%+d|%#x|%c|%p|%lld|%%\n", 3.25, 7, 8, 255, 'x', nullptr, -1ll << 40);
}

__global__ void many() {
    printf(
        "%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n",
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
        29, 30, 31, 32);
}

__global__ void takes(void **place) {
    *place = malloc(64);
    free(*place);
}

static void CUDART_CB look(void *grown) {
    fflush(stdout);
    *(long *)grown = (long)lseek(file, 0, SEEK_END);
}

// How long the file is that has all that was printed.
static long printed() {
    fflush(stdout);
    return (long)lseek(file, 0, SEEK_END);
}

static void redirect() {
    fflush(stdout);
    file = fileno(tmpfile());
    own = dup(1);
    dup2(file, 1);
}

// What was printed in between, which goes no further.
static const char *restore() {
    static char text[4096];
    fflush(stdout);
    dup2(own, 1);
    close(own);
    ssize_t size = pread(file, text, sizeof text - 1, 0);
    text[size < 0 ? 0 : size] = '\0';
    return text;
}

#define POINT(call)                                                                                          \
    do {                                                                                                     \
        long before = printed();                                                                             \
        say<<<1, 1, 0, stream>>>(++number);                                                                  \
        cudaError_t result = (call);                                                                         \
        there[points] = result == cudaSuccess && printed() > before;                                         \
        names[points++] = #call;                                                                             \
        cudaDeviceSynchronize();                                                                             \
    } while (0)

int main() {
    const char *names[16];
    int there[16], points = 0, number = 0, *data, values[4], word = 0;
    void **place;
    cudaStream_t stream;
    cudaEvent_t event;
    long seen = 0;
    RT_OK(cudaStreamCreate(&stream));
    RT_OK(cudaEventCreate(&event));
    RT_OK(cudaMalloc(&data, sizeof values));
    RT_OK(cudaMalloc(&place, sizeof *place));
    RT_OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    RT_OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    redirect();
    POINT(cudaDeviceSynchronize());
    POINT(cudaStreamSynchronize(stream));
    POINT((cudaEventRecord(event, stream), cudaEventSynchronize(event)));
    POINT(cudaMemcpy(&word, data, sizeof word, cudaMemcpyDeviceToHost));
    long before = printed();
    say<<<1, 1, 0, stream>>>(++number);
    RT_QUIET(cudaLaunchHostFunc(stream, look, &seen));
    RT_QUIET(cudaStreamSynchronize(stream));
    returns<<<1, 1>>>(data);
    RT_QUIET(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    many<<<1, 1>>>();
    RT_QUIET(cudaDeviceSynchronize());
    const char *text = restore();
    for (int i = 0; i < points; i++)
        check_fact(names[i], there[i]);
    EXPECT(seen > before);
    EXPECT(values[0] == 0 && values[1] == 2 && values[2] == -1 && values[3] == 7);
    EXPECT(strstr(text, "none\n1 two\n") != NULL);
    EXPECT(strstr(text, "  3.2|7   |+8|0xff|x|") != NULL && strstr(text, "|-1099511627776|%\n") != NULL);
    EXPECT(strstr(text, "1 2 3 4 5 6 7 8 9 10 ") != NULL && strstr(text, " 29 30 31 32\n") != NULL);
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
    takes<<<1, 1>>>(place);
    RT_OK(cudaDeviceSynchronize());
    RT_FAILS(cudaErrorInvalidValue, cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    return check_failed;
}
