// A thread that waits for the device is cancelled (pthread_cancel): the program goes on, and its calls do not
// hang.
#include <pthread.h>
#include <time.h>

#include "driver.h"

static CUstream stream;
static CUevent event;
static CUdeviceptr gate, memory;
static pthread_barrier_t begins;
static int way;

static void *waits(void *unused) {
    unsigned back = 0;
    cuCtxSetCurrent(context);
    pthread_barrier_wait(&begins);
    switch (way) {
    case 0:
        cuStreamSynchronize(stream);
        break;
    case 1:
        cuEventSynchronize(event);
        break;
    case 2:
        cuCtxSynchronize();
        break;
    default:
        cuMemcpyDtoHAsync(&back, memory, 4, stream); // pageable, so it waits
        break;
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    void *result;
    CUstream another;
    start();
    gate = allocate(4);
    memory = allocate(4);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&another, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    pthread_barrier_init(&begins, NULL, 2);
    for (way = 0; way < 4; way++) {
        unsigned value = 0;
        printf("way %d\n", way);
        OK(cuMemsetD32(gate, 0, 1));
        OK(cuMemsetD32(memory, 41, 1));
        OK(cuCtxSynchronize());
        OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
        OK(LAUNCH(kernel("count_up"), 1, 1, stream, &memory));
        OK(cuEventRecord(event, stream));
        pthread_create(&thread, NULL, waits, NULL);
        pthread_barrier_wait(&begins);
        nanosleep(&(struct timespec){.tv_nsec = 200000000},
                  NULL); // if it does not wait yet, nothing is proven
        pthread_cancel(thread);
        OK(cuStreamWriteValue32(another, gate, 1, 0));
        pthread_join(thread, &result); // at its next point of cancellation, or returned
        OK(cuStreamSynchronize(stream));
        OK(cuEventSynchronize(event));
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoH(&value, memory, 4));
        EXPECT(value == 42);
    }
    return check_failed;
}
