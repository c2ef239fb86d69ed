// Copies whose kind says another thing than their addresses, and memory that the program does not have:
// whoever copies from there dies of it, as a program that reads it would.
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t BYTES = 1 << 20;

static void die_in_copy(bool in) {
    char *data;
    if (cudaMalloc(&data, BYTES) == cudaSuccess) {
        void *nowhere = (void *)0x10000;
        if (in)
            cudaMemcpy(data, nowhere, BYTES, cudaMemcpyHostToDevice);
        else
            cudaMemcpy(nowhere, data, BYTES, cudaMemcpyDeviceToHost);
    }
    _exit(0);
}

static bool dies_in_copy(bool in) {
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        die_in_copy(in);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

int main() {
    EXPECT(dies_in_copy(true));
    EXPECT(dies_in_copy(false));

    static char host[BYTES], back[BYTES];
    char *one, *other;
    for (size_t i = 0; i < BYTES; i++)
        host[i] = (char)(i * 7);
    RT_OK(cudaMalloc(&one, BYTES));
    RT_OK(cudaMalloc(&other, BYTES));
    RT_OK(cudaMemcpy(one, host, BYTES, cudaMemcpyHostToDevice));
    RT_CALL(cudaMemcpy(other, one, BYTES, cudaMemcpyHostToDevice));
    RT_CALL(cudaMemcpy(back, other, BYTES, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(host, back, BYTES) == 0);
    RT_OK(cudaMemset(other, 0, BYTES));
    RT_CALL(cudaMemcpy(other, one, 1000, cudaMemcpyDeviceToHost));
    RT_CALL(cudaMemcpy2D(other + 2000, 500, one + 2000, 500, 500, 4, cudaMemcpyHostToDevice));
    RT_CALL(cudaMemcpy(back, other, 4000, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(host, back, 1000) == 0);
    EXPECT(memcmp(host + 2000, back + 2000, 2000) == 0);
    RT_CALL(cudaMemcpy(back, host, BYTES, cudaMemcpyDeviceToDevice));

    RT_OK(cudaFree(other));
    RT_OK(cudaMemcpy(back, one, BYTES, cudaMemcpyDeviceToHost));
    return check_failed;
}
