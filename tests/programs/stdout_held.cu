// A thread holds stdout (flockfile) across calls that wait for kernels which print, while another waits too;
// what is printed is there when the call returns, behind what the program printed before.
#include <pthread.h>
#include <unistd.h>

#include "check.h"

__global__ void speak(int number) {
    printf("kernel %d\n", number);
}

static cudaStream_t streams[2];
static pthread_barrier_t barrier;

static void *other(void *) {
    for (int i = 0; i < 20; i++) {
        pthread_barrier_wait(&barrier);
        RT_QUIET(cudaStreamSynchronize(streams[1]));
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main() {
    pthread_t thread;
    int printed[2], size = 0;
    char text[4096] = "";
    for (cudaStream_t &stream : streams)
        RT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    speak<<<1, 1, 0, streams[0]>>>(-1);
    RT_OK(cudaDeviceSynchronize());
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);

    // What is written to stdout meanwhile is looked at here.
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    if (pipe(printed) != 0 || dup2(printed[1], STDOUT_FILENO) < 0)
        return 2;
    for (int i = 0; i < 20; i++) {
        flockfile(stdout);
        printf("program %d\n", i);
        speak<<<1, 1, 0, streams[i % 2]>>>(i);
        pthread_barrier_wait(&barrier); // the other waits from here on
        RT_QUIET(cudaStreamSynchronize(streams[i % 2]));
        printf("again %d\n", i);
        funlockfile(stdout);
        pthread_barrier_wait(&barrier);
    }
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(printed[1]);
    for (ssize_t got; (got = read(printed[0], text + size, sizeof text - 1 - size)) > 0;)
        size += (int)got;
    pthread_join(thread, NULL);
    printf("%s", text);
    bool right = true;
    const char *at = text;
    for (int i = 0; i < 20; i++) {
        char wanted[64];
        int length = snprintf(wanted, sizeof wanted, "program %d\nkernel %d\nagain %d\n", i, i, i);
        right = right && strncmp(at, wanted, length) == 0;
        at += right ? length : 0;
    }
    EXPECT(right && *at == '\0');
    return check_failed;
}
