// Pointers to device functions and objects with virtual functions, kept in device memory from one round to
// the next.
#include <new>

#include "rounds.h"

enum { COUNT = 256, OPERATIONS = 4 };

using Operation = unsigned (*)(unsigned, unsigned);

__device__ __noinline__ unsigned add(unsigned a, unsigned b) {
    return a + b;
}
__device__ __noinline__ unsigned multiply(unsigned a, unsigned b) {
    return a * (b | 1);
}
__device__ __noinline__ unsigned mix(unsigned a, unsigned b) {
    return a ^ (b << 5);
}
__device__ __noinline__ unsigned turn(unsigned a, unsigned b) {
    return a << (b % 31 + 1) | a >> (31 - b % 31);
}

__device__ Operation operations[OPERATIONS] = {add, multiply, mix, turn};

unsigned on_host(unsigned which, unsigned a, unsigned b) {
    switch (which) {
    case 0:
        return a + b;
    case 1:
        return a * (b | 1);
    case 2:
        return a ^ (b << 5);
    default:
        return a << (b % 31 + 1) | a >> (31 - b % 31);
    }
}

struct Shape {
    unsigned size;
    __device__ explicit Shape(unsigned size) : size(size) {
    }
    __device__ virtual unsigned area() const = 0;
    __device__ virtual unsigned corners() const {
        return 0;
    }
};

struct Square : Shape {
    using Shape::Shape;
    __device__ unsigned area() const override {
        return size * size;
    }
    __device__ unsigned corners() const override {
        return 4;
    }
};

struct Disc : Shape {
    using Shape::Shape;
    __device__ unsigned area() const override {
        return size * size * 3;
    }
};

union Place {
    unsigned char bytes[sizeof(Square) > sizeof(Disc) ? sizeof(Square) : sizeof(Disc)];
    void *aligned;
};

__global__ void choose(Operation *chosen) {
    chosen[threadIdx.x] = operations[threadIdx.x % OPERATIONS];
}

__global__ void apply(unsigned *data, const Operation *chosen, unsigned round) {
    data[threadIdx.x] = chosen[threadIdx.x](data[threadIdx.x], threadIdx.x + round);
}

// Every round a quarter of the objects is made anew, of the other kind.
__global__ void make(Place *places, unsigned round) {
    const unsigned i = threadIdx.x;
    if (round != 0 && i % 4 != round % 4)
        return;
    if ((i / 4 + round) % 2)
        new (&places[i]) Square(i);
    else
        new (&places[i]) Disc(i);
}

__global__ void measure(const Place *places, unsigned long long *sums) {
    const Shape *shape = reinterpret_cast<const Shape *>(&places[threadIdx.x]);
    atomicAdd(&sums[0], static_cast<unsigned long long>(shape->area()));
    atomicAdd(&sums[1], static_cast<unsigned long long>(shape->corners()));
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    Operation *chosen, before[COUNT], after[COUNT];
    unsigned *data, host[COUNT], result[COUNT];
    bool square[COUNT];
    Place *places;
    unsigned long long *sums, got[2];
    void *table;
    RT_OK(cudaMalloc(&chosen, sizeof before));
    RT_OK(cudaMalloc(&data, sizeof host));
    RT_OK(cudaMalloc(&places, COUNT * sizeof(Place)));
    RT_OK(cudaMalloc(&sums, sizeof got));
    for (unsigned i = 0; i < COUNT; i++)
        host[i] = i * 77 + 1;
    RT_OK(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice));
    choose<<<1, COUNT>>>(chosen);
    RT_OK(cudaMemcpy(before, chosen, sizeof before, cudaMemcpyDeviceToHost));
    RT_OK(cudaGetSymbolAddress(&table, operations));
    show_pointer("start", "operations", reinterpret_cast<uint64_t>(table));
    show_pointer("start", "add", reinterpret_cast<uint64_t>(before[0]));
    for (int round = 0; round < rounds; round++) {
        begin_round(round + 1);
        apply<<<1, COUNT>>>(data, chosen, round);
        make<<<1, COUNT>>>(places, round);
        RT_OK(cudaMemset(sums, 0, sizeof got));
        measure<<<1, COUNT>>>(places, sums);
        RT_OK(cudaMemcpy(result, data, sizeof result, cudaMemcpyDeviceToHost));
        RT_OK(cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost));
        unsigned wrong = 0;
        unsigned long long area = 0, corners = 0;
        for (unsigned i = 0; i < COUNT; i++) {
            host[i] = on_host(i % OPERATIONS, host[i], i + round);
            wrong += result[i] != host[i];
            if (round == 0 || i % 4 == round % 4u)
                square[i] = (i / 4 + round) % 2;
            area += i * i * (square[i] ? 1 : 3);
            corners += square[i] ? 4 : 0;
        }
        EXPECT(wrong == 0);
        EXPECT(got[0] == area && got[1] == corners);
        digest("data", result, sizeof result);
        printf("area %llu, corners %llu\n", got[0], got[1]);
    }
    // What kernels take the address of now is what they took it of at the start.
    RT_OK(cudaMemset(chosen, 0, sizeof after));
    choose<<<1, COUNT>>>(chosen);
    RT_OK(cudaMemcpy(after, chosen, sizeof after, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(before, after, sizeof before) == 0);
    show_pointer("end", "operations", reinterpret_cast<uint64_t>(table));
    show_pointer("end", "add", reinterpret_cast<uint64_t>(after[0]));
    return check_failed;
}
