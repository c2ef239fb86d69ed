// What was said of where managed memory is best kept, by parts; batches of prefetches and discards.
#include "driver.h"

enum { SIZE = 1 << 20, HALF = SIZE / 2 };

static CUdeviceptr memory;
static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST},
                           first = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

static int get(CUmem_range_attribute attribute, CUdeviceptr address, size_t size) {
    int value = 77;
    OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, size));
    return value;
}

static void parts(void) {
    int accessed[3] = {7, 7, 7};
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, SIZE) == 0);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, SIZE) == CU_DEVICE_INVALID);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, SIZE) == CU_DEVICE_INVALID);
    OK(cuMemAdvise(memory, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, first));
    OK(cuMemAdvise(memory, HALF, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    OK(cuMemAdvise(memory, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
    const CUmemLocation node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(memory, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, node));
    OK(cuMemAdvise(memory, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, first));
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory + 100, SIZE - 200) == 1);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, HALF) == CU_DEVICE_CPU);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, memory, HALF) == CU_MEM_LOCATION_TYPE_HOST);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, SIZE) == CU_DEVICE_INVALID);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory + HALF, HALF) == CU_DEVICE_INVALID);
    OK(cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, SIZE));
    EXPECT(accessed[0] == 0 && accessed[1] == CU_DEVICE_CPU && accessed[2] == CU_DEVICE_INVALID);
    OK(cuMemAdvise(memory + 4096, 4096, CU_MEM_ADVISE_UNSET_ACCESSED_BY, first));
    OK(cuMemAdvise(memory + SIZE - 1, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY, first));
    OK(cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, SIZE));
    EXPECT(accessed[0] == CU_DEVICE_CPU && accessed[1] == CU_DEVICE_INVALID);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, SIZE) == 0);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, SIZE - 1) == 1);
    OK(cuMemAdvise(memory, SIZE, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, first));
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, HALF) == CU_DEVICE_INVALID);
    OK(cuMemPrefetchAsync(memory, SIZE, first, 0, NULL));
    OK(cuMemPrefetchAsync(memory, HALF, host, 0, NULL));
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory + HALF, HALF) == 0);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, HALF) == CU_DEVICE_CPU);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, memory, SIZE) ==
           CU_MEM_LOCATION_TYPE_INVALID);
}

static void several(void) {
    int values[2] = {7, 7};
    void *data[] = {&values[0], &values[1]};
    size_t sizes[] = {4, 4};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID};
    OK(cuMemRangeGetAttributes(data, sizes, attributes, 2, memory + HALF, 16));
    EXPECT(values[0] == 1 && values[1] == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(NULL, sizes, attributes, 2, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(data, NULL, attributes, 2, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(data, sizes, NULL, 2, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(data, sizes, attributes, 0, memory, 16));
}

static void errors(void) {
    int value[2];
    CUdeviceptr plain = allocate(64);
    const CUmem_range_attribute mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 8, mostly, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 0, mostly, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(NULL, 4, mostly, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 4, mostly, memory, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 4, mostly, memory, SIZE + 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 4, mostly, plain, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(value, 4, (CUmem_range_attribute)99, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuMemRangeGetAttribute(value, 6, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, 16));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(NULL, memory, 16, CU_MEM_ATTACH_GLOBAL));
    OK(cuStreamAttachMemAsync(NULL, memory, SIZE, CU_MEM_ATTACH_GLOBAL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(NULL, memory, 0, CU_MEM_ATTACH_SINGLE));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuStreamAttachMemAsync(CU_STREAM_LEGACY, memory, 0, CU_MEM_ATTACH_SINGLE));
    OK(cuStreamAttachMemAsync(CU_STREAM_PER_THREAD, memory, 0, CU_MEM_ATTACH_SINGLE));
    OK(cuMemFree(plain));
}

static void batches(void) {
    CUstream stream;
    CUdeviceptr where[] = {memory, memory + HALF, memory + HALF + 4096}, plain[] = {allocate(64)};
    size_t sizes[] = {HALF, 4096, 4096}, firsts[] = {0, 1}, wrong[] = {1, 2}, one[] = {64};
    CUmemLocation to[] = {first, host}, nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPrefetchBatchAsync(where, sizes, 3, to, firsts, 2, 0, stream));
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, HALF) == 0);
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory + HALF, 8192) == CU_DEVICE_CPU);
    OK(cuMemDiscardBatchAsync(where, sizes, 3, 0, stream));
    OK(cuMemDiscardAndPrefetchBatchAsync(where, sizes, 3, to + 1, firsts, 1, 0, stream));
    EXPECT(get(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, HALF) == CU_DEVICE_CPU);
    *(unsigned *)memory = 5; // what is written after it is there
    OK(LAUNCH(kernel("count_up"), 1, 1, stream, &memory));
    OK(cuStreamSynchronize(stream));
    EXPECT(*(unsigned *)memory == 6);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 3, to, wrong, 2, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 3, to, firsts, 0, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 0, to, firsts, 2, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 1, to, firsts, 2, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 3, to, firsts, 2, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(where, sizes, 3, to, firsts, 2, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuMemPrefetchBatchAsync(where, sizes, 3, &nowhere, firsts, 1, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(plain, one, 1, to, firsts, 1, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(plain, one, 1, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(where, sizes, 3, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(where, sizes, 3, 1, stream));
}

// A stream that is captured is not waited for by pages, so the capture fails.
static void captured(void) {
    CUstream stream;
    CUgraph graph;
    CUdeviceptr where[] = {memory};
    size_t sizes[] = {HALF}, firsts[] = {0};
    CUmemLocation to[] = {host};
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemPrefetchAsync_v2(memory, HALF, first, 0, stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemDiscardBatchAsync(where, sizes, 1, 0, stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          cuMemPrefetchBatchAsync(where, sizes, 1, to, firsts, 1, 0, stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
}

// Where pages are, summed up for parts of a range.
static void locations(void) {
    CUmemLocation found[4] = {{0}};
    OK(cuMemPrefetchAsync_v2(memory, HALF, first, 0, NULL));
    OK(cuMemPrefetchAsync_v2(memory + HALF, HALF, host, 0, NULL));
    OK(cuMemGetLocationInfo(memory, 2 * HALF, HALF, 4096, found));
    EXPECT(found[0].type == CU_MEM_LOCATION_TYPE_DEVICE && found[1].type == CU_MEM_LOCATION_TYPE_HOST);
    OK(cuMemGetLocationInfo(memory, 2 * HALF, 2 * HALF, 4096, found));
    EXPECT(found[0].type == CU_MEM_LOCATION_TYPE_INVALID);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetLocationInfo(memory, HALF, 0, 0, found));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetLocationInfo(memory, HALF, HALF, HALF + 1, found));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetLocationInfo(memory, HALF, HALF, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetLocationInfo(allocate(64), 64, 64, 0, found));
}

int main(void) {
    start();
    OK(cuMemAllocManaged(&memory, SIZE, CU_MEM_ATTACH_GLOBAL));
    parts();
    several();
    errors();
    batches();
    captured();
    locations();
    OK(cuMemFree(memory));
    return check_failed;
}
