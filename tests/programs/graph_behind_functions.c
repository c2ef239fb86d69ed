// A graph that is launched behind a function of the program, or behind a word that the program writes, reads
// the program's memory when its turn comes: what the program has written until then. Its launch waits for
// neither.
#include <stdatomic.h>
#include <unistd.h>

#include "driver.h"

enum { MOST = 3 << 20 };

static CUstream stream;
static CUdeviceptr target, word;
static atomic_bool go_on;

struct fill {
    char *memory;
    size_t size;
    char value;
};

static void CUDA_CB fill(void *data) {
    const struct fill *f = data;
    while (!atomic_load(&go_on)) {
        usleep(100);
    }
    memset(f->memory, f->value, f->size);
}

static CUgraphExec graph_of_copy(const void *memory, size_t size) {
    CUgraph graph;
    CUgraphExec exec = NULL;
    QUIET(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    QUIET(cuMemcpyHtoDAsync(target, memory, size, stream));
    QUIET(cuStreamEndCapture(stream, &graph));
    QUIET(cuGraphInstantiate(&exec, graph, 0));
    QUIET(cuGraphDestroy(graph));
    return exec;
}

static bool holds(char value, size_t size) {
    static char back[MOST];
    QUIET(cuMemcpyDtoH(back, target, size));
    for (size_t i = 0; i < size; i++) {
        if (back[i] != value) {
            return false;
        }
    }
    return true;
}

static void behind_function(char *memory, size_t size) {
    CUgraphExec exec = graph_of_copy(memory, size);
    struct fill f = {memory, size, 5};
    memset(memory, 1, size);
    atomic_store(&go_on, false);
    OK(cuLaunchHostFunc(stream, fill, &f));
    OK(cuGraphLaunch(exec, stream));
    atomic_store(&go_on, true);
    OK(cuStreamSynchronize(stream));
    EXPECT(holds(5, size));
    OK(cuGraphExecDestroy(exec));
}

static void behind_word(char *memory, size_t size, uint32_t value) {
    CUgraphExec exec = graph_of_copy(memory, size);
    memset(memory, 1, size);
    OK(cuStreamWaitValue32(stream, word, value, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuGraphLaunch(exec, stream));
    memset(memory, 7, size);
    OK(cuStreamWriteValue32(CU_STREAM_PER_THREAD, word, value, 0));
    OK(cuStreamSynchronize(stream));
    EXPECT(holds(7, size));
    OK(cuGraphExecDestroy(exec));
}

int main(void) {
    static char pageable[MOST];
    const size_t sizes[] = {64, 100000, MOST};
    void *locked;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost(&locked, MOST));
    OK(cuMemAlloc(&target, MOST));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemsetD32(word, 0, 1));
    for (unsigned i = 0; i < 3; i++) {
        behind_function(pageable, sizes[i]);
        behind_function(locked, sizes[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        behind_word(pageable, sizes[i], 2 * i + 1);
        behind_word(locked, sizes[i], 2 * i + 2);
    }
    return check_failed;
}
