"""CuPy: its own kernels (NVRTC), CUB, cuBLAS, cuFFT, raw kernels."""

import cupy

x = cupy.arange(1 << 20, dtype=cupy.int64)
print("sum", int((x * 3 + 1).sum()), int(cupy.sort(x[::-1])[5]))
m = cupy.arange(256 * 256, dtype=cupy.float64).reshape(256, 256) % 7
print("matmul", float((m @ m).sum()), round(float(cupy.abs(cupy.fft.fft(m)).sum()), 3))
kernel = cupy.RawKernel(r'extern "C" __global__ void twice(int *p) { p[threadIdx.x] *= 2; }', "twice")
p = cupy.arange(32, dtype=cupy.int32)
kernel((1,), (32,), (p,))
print("raw", p.tolist())
