/* The whole of libcuda.so, which only needs libcuda.so.1 (driver_link.cmake). */
