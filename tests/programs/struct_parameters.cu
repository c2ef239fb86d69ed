// Parameters of every size and alignment by value: structs, arrays in structs, small integers between
// pointers.
#include "check.h"

struct Pair {
    char letter;
    double number;
};

struct Mixed {
    short small;
    Pair pairs[3];
    float3 triple;
    unsigned long long big;
};

// Pointers at odd offsets.
struct __attribute__((packed)) Packed {
    char letter;
    int *first;
    short number;
    int *second;
};

struct alignas(16) Wide {
    float values[8];
};

__global__ void unpack(double *out, bool flag, Mixed mixed, unsigned char byte, Wide wide, short small,
                       Pair pair) {
    const int i = threadIdx.x;
    const double parts[8] = {flag ? 1.0 : 0.0,
                             mixed.pairs[2].number + mixed.pairs[1].letter,
                             static_cast<double>(mixed.big),
                             mixed.triple.z,
                             static_cast<double>(byte),
                             wide.values[7],
                             static_cast<double>(small + mixed.small),
                             pair.number + pair.letter};
    out[i] = parts[i];
}

__global__ void follow(Packed packed) {
    *packed.first += packed.number;
    *packed.second += packed.letter;
}

// Page-locked memory that no kernel had before.
static void pointers() {
    Packed packed = {'a', nullptr, 30, nullptr};
    int *first, *second;
    RT_OK(cudaMallocHost(&first, sizeof *first));
    RT_OK(cudaMallocHost(&second, sizeof *second));
    *first = *second = 1;
    packed.first = first;
    packed.second = second;
    follow<<<1, 1>>>(packed);
    RT_OK(cudaDeviceSynchronize());
    EXPECT(*first == 31 && *second == 'a' + 1);
    RT_OK(cudaFreeHost(first));
    RT_OK(cudaFreeHost(second));
}

int main() {
    double *device, out[8];
    Mixed mixed = {-7, {{'a', 1.5}, {'b', 2.5}, {'c', 3.5}}, {0.1f, 0.2f, 0.3f}, 1ull << 50};
    Wide wide = {{0, 1, 2, 3, 4, 5, 6, 7.25f}};
    Pair pair = {'z', 1e300};
    RT_OK(cudaMalloc(&device, sizeof out));
    unpack<<<1, 8>>>(device, true, mixed, 200, wide, -300, pair);
    RT_OK(cudaGetLastError());
    RT_OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    EXPECT(out[0] == 1 && out[1] == 3.5 + 'b' && out[2] == static_cast<double>(1ull << 50));
    EXPECT(out[3] == 0.3f && out[4] == 200 && out[5] == 7.25);
    EXPECT(out[6] == -307 && out[7] == 1e300 + 'z');
    digest("parts", out, sizeof out);
    pointers();
    return check_failed;
}
