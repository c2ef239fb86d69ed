// Memsets of every width, plain, asynchronous and two-dimensional, against the same done by the host.
#include "driver.h"

enum { BYTES = 8192 };
static unsigned char expected[BYTES], found[BYTES];

static void set(size_t offset, const void *value, size_t width, size_t count) {
    for (size_t i = 0; i < count; i++)
        memcpy(expected + offset + i * width, value, width);
}

static void compare(CUdeviceptr memory) {
    QUIET(cuMemcpyDtoH(found, memory, BYTES));
    EXPECT(memcmp(expected, found, BYTES) == 0);
}

int main(void) {
    const unsigned char d8 = 0xa1;
    const unsigned short d16 = 0xb2c3;
    const unsigned d32 = 0xd4e5f607;
    start();
    CUdeviceptr memory = allocate(BYTES);
    OK(cuMemsetD8(memory, d8, BYTES));
    set(0, &d8, 1, BYTES);
    compare(memory);
    OK(cuMemsetD16(memory + 10, d16, 333));
    set(10, &d16, 2, 333);
    compare(memory);
    OK(cuMemsetD32(memory + 1000, d32, 777));
    set(1000, &d32, 4, 777);
    compare(memory);
    OK(cuMemsetD8Async(memory + 7, 1, 13, NULL));
    OK(cuMemsetD16Async(memory + 4100, 0x1234, 99, NULL));
    OK(cuMemsetD32Async(memory + 5000, 0x89abcdef, 50, NULL));
    set(7, &(unsigned char){1}, 1, 13);
    set(4100, &(unsigned short){0x1234}, 2, 99);
    set(5000, &(unsigned){0x89abcdef}, 4, 50);
    compare(memory);
    OK(cuMemsetD2D8(memory + 3, 128, 0x11, 70, 20));
    OK(cuMemsetD2D16(memory + 2560, 64, 0x2222, 9, 11));
    OK(cuMemsetD2D32(memory + 4096, 256, 0x33445566, 20, 15));
    OK(cuMemsetD2D8Async(memory + 1, 1000, 0x44, 5, 8, NULL));
    for (size_t row = 0; row < 20; row++)
        set(3 + row * 128, &(unsigned char){0x11}, 1, 70);
    for (size_t row = 0; row < 11; row++)
        set(2560 + row * 64, &(unsigned short){0x2222}, 2, 9);
    for (size_t row = 0; row < 15; row++)
        set(4096 + row * 256, &(unsigned){0x33445566}, 4, 20);
    for (size_t row = 0; row < 8; row++)
        set(1 + row * 1000, &(unsigned char){0x44}, 1, 5);
    compare(memory);
    digest("memory", found, BYTES);
    return check_failed;
}
