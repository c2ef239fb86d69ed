// A hundred thousand tiny launches in one stream, none lost and none reordered.
#include "check.h"

__global__ void step(unsigned *state, unsigned index) {
    state[0] = state[0] * 1664525u + index;
    state[1] += 1;
}

int main() {
    constexpr unsigned LAUNCHES = 100000;
    unsigned *device, state[2], expected = 0;
    RT_OK(cudaMalloc(&device, sizeof state));
    RT_OK(cudaMemset(device, 0, sizeof state));
    for (unsigned i = 0; i < LAUNCHES; i++) {
        step<<<1, 1>>>(device, i);
        RT_QUIET(cudaPeekAtLastError());
        expected = expected * 1664525u + i;
    }
    RT_OK(cudaMemcpy(state, device, sizeof state, cudaMemcpyDeviceToHost));
    EXPECT(state[1] == LAUNCHES);
    EXPECT(state[0] == expected);
    return check_failed;
}
