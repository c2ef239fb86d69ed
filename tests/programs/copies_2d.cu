// Pitched memory: rows copied in, between, and out with different pitches; a 2-D memset; rows that do not
// fit.
#include <vector>

#include "check.h"

__global__ void transform(unsigned char *data, size_t pitch, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height)
        data[y * pitch + x] ^= static_cast<unsigned char>(x * 7 + y);
}

int main() {
    constexpr int WIDTH = 333, HEIGHT = 77, HOST_PITCH = 400;
    std::vector<unsigned char> host(HOST_PITCH * HEIGHT), back(WIDTH * HEIGHT);
    for (size_t i = 0; i < host.size(); i++)
        host[i] = static_cast<unsigned char>(i * 13);
    unsigned char *a, *b;
    size_t pitch_a = 0, pitch_b = 0;
    RT_OK(cudaMallocPitch(&a, &pitch_a, WIDTH, HEIGHT));
    RT_OK(cudaMallocPitch(&b, &pitch_b, WIDTH + 300, HEIGHT));
    EXPECT(pitch_a >= WIDTH && pitch_a % 32 == 0);
    EXPECT(pitch_b > pitch_a);
    RT_OK(cudaMemset2D(b, pitch_b, 0x5a, WIDTH + 300, HEIGHT));
    RT_OK(cudaMemcpy2D(a, pitch_a, host.data(), HOST_PITCH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    transform<<<dim3(2, HEIGHT), 256>>>(a, pitch_a, WIDTH, HEIGHT);
    RT_OK(cudaMemcpy2D(b + 100, pitch_b, a, pitch_a, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice));
    RT_OK(cudaMemcpy2DAsync(back.data(), WIDTH, b + 100, pitch_b, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    RT_OK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            wrong +=
                back[y * WIDTH + x] != static_cast<unsigned char>(host[y * HOST_PITCH + x] ^ (x * 7 + y));
    EXPECT(wrong == 0);
    RT_OK(cudaMemcpy2D(back.data(), WIDTH, b, pitch_b, 100, HEIGHT, cudaMemcpyDeviceToHost));
    EXPECT(back[0] == 0x5a && back[(HEIGHT - 1) * WIDTH + 99] == 0x5a);
    digest("rows", back.data(), back.size());
    RT_FAILS(cudaErrorInvalidPitchValue,
             cudaMemcpy2D(a, 10, host.data(), HOST_PITCH, WIDTH, 2, cudaMemcpyHostToDevice));
    return check_failed;
}
