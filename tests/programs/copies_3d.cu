// A box inside a box, copied in and out with cudaMemcpy3D.
#include <vector>

#include "check.h"

__global__ void invert(unsigned *data, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = ~data[i];
}

int main() {
    constexpr int X = 20, Y = 15, Z = 10;
    std::vector<unsigned> host(X * Y * Z), back(X * Y * Z, 0);
    for (size_t i = 0; i < host.size(); i++)
        host[i] = static_cast<unsigned>(i * 2654435761u);
    unsigned *device;
    RT_OK(cudaMalloc(&device, host.size() * 4));
    RT_OK(cudaMemset(device, 0, host.size() * 4));
    cudaMemcpy3DParms in = {};
    in.srcPtr = make_cudaPitchedPtr(host.data(), X * 4, X, Y);
    in.dstPtr = make_cudaPitchedPtr(device, X * 4, X, Y);
    in.srcPos = make_cudaPos(4, 1, 2);
    in.dstPos = make_cudaPos(8, 3, 1);
    in.extent = make_cudaExtent(12 * 4, 9, 7);
    in.kind = cudaMemcpyHostToDevice;
    RT_OK(cudaMemcpy3D(&in));
    invert<<<(X * Y * Z + 127) / 128, 128>>>(device, X * Y * Z);
    cudaMemcpy3DParms out = {};
    out.srcPtr = make_cudaPitchedPtr(device, X * 4, X, Y);
    out.dstPtr = make_cudaPitchedPtr(back.data(), X * 4, X, Y);
    out.extent = make_cudaExtent(X * 4, Y, Z);
    out.kind = cudaMemcpyDeviceToHost;
    RT_OK(cudaMemcpy3DAsync(&out));
    RT_OK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int z = 0; z < Z; z++)
        for (int y = 0; y < Y; y++)
            for (int x = 0; x < X; x++) {
                const bool inside = x >= 2 && x < 14 && y >= 3 && y < 12 && z >= 1 && z < 8;
                const unsigned value = inside ? host[((z + 1) * Y + y - 2) * X + x - 1] : 0;
                wrong += back[(z * Y + y) * X + x] != ~value;
            }
    EXPECT(wrong == 0);
    digest("box", back.data(), back.size() * 4);
    return check_failed;
}
