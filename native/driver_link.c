/* The whole of libcuda.so and libnvidia-ml.so: names for a linker (driver_names.cmake). */
static void refuse(void) {
    __builtin_trap(); /* the loader takes none of them from here */
}
#define NAME(name) extern __attribute__((alias("refuse"))) void name(void);
#include "driver_link_names.h"
