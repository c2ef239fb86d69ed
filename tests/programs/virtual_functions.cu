// Objects with virtual functions made, used and destroyed by different kernels; functions that the host hands
// over by their addresses; recursion; a lambda with what it captured.
//
// compile: --extended-lambda
#include "check.h"

typedef float (*Operation)(float, float);

__device__ float plus(float a, float b) {
    return a + b;
}

__device__ float times(float a, float b) {
    return a * b;
}

__device__ Operation operations[2] = {plus, times};

struct Shape {
    __device__ virtual ~Shape() {
    }
    __device__ virtual float area() const = 0;
};

struct Square : Shape {
    float side;
    __device__ Square(float side) : side(side) {
    }
    __device__ float area() const override {
        return side * side;
    }
};

struct Frame : Square {
    using Square::Square;
    __device__ float area() const override {
        return Square::area() - 1;
    }
};

__global__ void make(Shape **shapes) {
    shapes[0] = new Square(2);
    shapes[1] = new Frame(3);
}

__global__ void measure(Shape **shapes, float *areas) {
    areas[threadIdx.x] = shapes[threadIdx.x]->area();
}

__global__ void drop(Shape **shapes) {
    delete shapes[threadIdx.x];
}

__global__ void apply(Operation operation, float *out) {
    out[threadIdx.x] = operation(threadIdx.x, 3);
}

__device__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__global__ void recurse(float *out) {
    out[threadIdx.x] = fibonacci(threadIdx.x + 10);
}

template <class Function> __global__ void call(Function function, float *out) {
    out[threadIdx.x] = function(threadIdx.x);
}

static float values[4];

static void fetch(const float *from) {
    RT_OK(cudaMemcpy(values, from, sizeof values, cudaMemcpyDeviceToHost));
}

int main() {
    Shape **shapes;
    float *out, factor = 2.5f;
    Operation chosen[2];
    RT_OK(cudaMalloc(&shapes, 2 * sizeof *shapes));
    RT_OK(cudaMalloc(&out, sizeof values));
    make<<<1, 1>>>(shapes);
    measure<<<1, 2>>>(shapes, out);
    drop<<<1, 2>>>(shapes);
    fetch(out);
    EXPECT(values[0] == 4 && values[1] == 8);
    RT_OK(cudaMemcpyFromSymbol(chosen, operations, sizeof chosen));
    apply<<<1, 4>>>(chosen[0], out);
    fetch(out);
    EXPECT(values[3] == 6);
    apply<<<1, 4>>>(chosen[1], out);
    fetch(out);
    EXPECT(values[3] == 9);
    RT_OK(cudaDeviceSetLimit(cudaLimitStackSize, 16384));
    recurse<<<1, 4>>>(out);
    fetch(out);
    EXPECT(values[0] == 55 && values[3] == 233);
    call<<<1, 4>>>([=] __device__(int i) { return i * factor; }, out);
    fetch(out);
    EXPECT(values[3] == 7.5f);
    return check_failed;
}
