// Sixty-four kernels in one module, each launched in its turn.
#include <utility>

#include "check.h"

template <int I> __global__ void step(unsigned *state) {
    state[threadIdx.x] = state[threadIdx.x] * (2 * I + 3) + I;
}

template <int... I> static void launch_all(unsigned *state, std::integer_sequence<int, I...>) {
    ((step<I><<<1, 64>>>(state), RT_QUIET(cudaPeekAtLastError())), ...);
}

int main() {
    unsigned *device, state[64], wrong = 0;
    RT_OK(cudaMalloc(&device, sizeof state));
    RT_OK(cudaMemset(device, 1, sizeof state));
    launch_all(device, std::make_integer_sequence<int, 64>());
    RT_OK(cudaMemcpy(state, device, sizeof state, cudaMemcpyDeviceToHost));
    unsigned expected = 0x01010101;
    for (unsigned i = 0; i < 64; i++)
        expected = expected * (2 * i + 3) + i;
    for (unsigned word : state)
        wrong += word != expected;
    EXPECT(wrong == 0);
    digest("state", state, sizeof state);
    return check_failed;
}
