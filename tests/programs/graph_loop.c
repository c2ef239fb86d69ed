// A thousand launches of one executable graph that reads the program's memory: none waits for the server.
// Natively there is nothing to count.
#include <dlfcn.h>

#include "driver.h"
#include "wire/stats.h"

static uint64_t round_trips(void) {
    void (*read_stats)(struct gf_stats *) =
        (void (*)(struct gf_stats *))dlsym(RTLD_DEFAULT, "gpuferry_stats");
    struct gf_stats stats = {0};
    if (read_stats)
        read_stats(&stats);
    return stats.round_trips;
}

int main(void) {
    enum { LAUNCHES = 1000 };
    unsigned added = 5, counted = 0, sum = 0;
    start();
    CUdeviceptr counter = allocate(4), step = allocate(4);
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuMemsetD32(counter, 0, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemcpyHtoDAsync(step, &added, 4, stream));
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &counter));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    const uint64_t before = round_trips();
    for (int i = 0; i < LAUNCHES; i++)
        QUIET(cuGraphLaunch(exec, stream));
    EXPECT(round_trips() == before);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&counted, counter, 4));
    OK(cuMemcpyDtoH(&sum, step, 4));
    EXPECT(counted == LAUNCHES && sum == 5);
    OK(cuGraphExecDestroy(exec));
    return check_failed;
}
