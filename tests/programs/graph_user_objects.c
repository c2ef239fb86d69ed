// Objects of the program that a graph refers to are destroyed when what was launched of it is over, even if
// the executable graph ends before, or becomes another one, which refers to that one's objects from then on.
#include "graphs.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static CUdeviceptr data;
static pthread_t program;
static atomic_bool opened, takes_signals;
static atomic_uint destroyed[2];

static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void CUDA_CB await(void *unused) {
    (void)unused;
    while (!atomic_load(&opened))
        rest();
}

// In a thread of the driver's, that takes no signals of the program.
static void CUDA_CB destroy(void *count) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!pthread_equal(pthread_self(), program) && sigismember(&blocked, SIGUSR1) != 1)
        atomic_store(&takes_signals, true);
    atomic_fetch_add((atomic_uint *)count, 1);
}

// CUDA does not say when, nor in which thread.
static int comes_to_an_end(int which) {
    for (int tries = 0; tries < 3000 && atomic_load(&destroyed[which]) == 0; tries++)
        rest();
    return atomic_load(&destroyed[which]) == 1;
}

// A fill, and an object that it alone refers to.
static CUgraph new_graph(int which) {
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = data, .value = 9, .elementSize = 4, .width = 1, .height = 1};
    CUgraph graph = NULL;
    CUgraphNode node;
    CUuserObject object;
    atomic_store(&destroyed[which], 0);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    OK(cuUserObjectCreate(&object, &destroyed[which], destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    return graph;
}

int main(void) {
    start();
    program = pthread_self();
    CUstream stream;
    unsigned word;
    data = allocate(4);
    OK(cuMemsetD32(data, 0, 1));
    OK(cuStreamSynchronize(NULL)); // a stream that does not block waits for nothing of the default stream
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int updated = 0; updated < 2; updated++) {
        CUgraph first = new_graph(0), second = new_graph(1);
        CUgraphExec exec;
        CUgraphExecUpdateResultInfo info;
        atomic_store(&opened, false);
        OK(cuGraphInstantiate(&exec, first, 0));
        OK(cuGraphDestroy(first));
        OK(cuLaunchHostFunc(stream, await, NULL));
        OK(cuGraphLaunch(exec, stream));
        if (updated)
            OK(cuGraphExecUpdate(exec, second, &info));
        else
            OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(second));
        EXPECT(updated || comes_to_an_end(1));
        rest();
        EXPECT(destroyed[0] == 0 && destroyed[1] == (unsigned)!updated);
        atomic_store(&opened, true);
        OK(cuStreamSynchronize(stream));
        EXPECT(comes_to_an_end(0));
        if (updated) { // which holds what it has become
            EXPECT(destroyed[1] == 0);
            OK(cuGraphExecDestroy(exec));
        }
        EXPECT(comes_to_an_end(1));
    }
    OK(cuMemcpyDtoH(&word, data, sizeof word));
    EXPECT(word == 9);

    // Nobody is waited for, also where the launch's stream has ended.
    CUgraph graph = new_graph(0);
    CUgraphExec exec;
    atomic_store(&opened, false);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuLaunchHostFunc(stream, await, NULL));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamDestroy(stream));
    OK(cuGraphExecDestroy(exec));
    rest();
    EXPECT(destroyed[0] == 0);
    atomic_store(&opened, true);
    EXPECT(comes_to_an_end(0));
    EXPECT(!takes_signals);
    return check_failed;
}
