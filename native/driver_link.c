/* The whole of libcuda.so, which only needs libcuda.so.1, and of libnvidia-ml.so (driver_names.cmake). */
