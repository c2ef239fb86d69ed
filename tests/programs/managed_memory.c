// Managed memory: one address for program and device, structures full of pointers, writes of either side seen
// by the other after a launch and a wait, first touches by several threads at once, copies and fills by any
// name.
//
// compile: -pthread
#include "driver.h"

#include <pthread.h>

enum { WORDS = 1 << 18, THREADS = 4, NODES = 500 };

struct node {
    struct node *next;
    uint64_t value;
};

// Adds 1 to each value of a list.
static const char list_ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .entry bump(.param .u64 head) {\n"
                               "  .reg .pred %p; .reg .u64 %rd<4>;\n"
                               "  ld.param.u64 %rd1, [head];\n"
                               "again:\n"
                               "  setp.eq.u64 %p, %rd1, 0;\n"
                               "  @%p bra done;\n"
                               "  ld.u64 %rd2, [%rd1+8];\n"
                               "  add.u64 %rd2, %rd2, 1;\n"
                               "  st.u64 [%rd1+8], %rd2;\n"
                               "  ld.u64 %rd1, [%rd1];\n"
                               "  bra again;\n"
                               "done:\n"
                               "  ret;\n"
                               "}\n";

static CUmemLocation at_device(int id) {
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id};
}

static CUmemLocation at_host(void) {
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
}

static void *managed(size_t size) {
    CUdeviceptr address = 0;
    QUIET(cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL));
    return (void *)address;
}

static void nested(void) {
    CUmodule lists;
    CUfunction bump;
    unsigned wrong = 0;
    OK(cuModuleLoadData(&lists, list_ptx));
    OK(cuModuleGetFunction(&bump, lists, "bump"));
    struct node *nodes = managed(NODES * sizeof *nodes), *head = NULL;
    struct node *far = managed(sizeof *far); // another allocation
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i] = (struct node){head, i};
        head = &nodes[i];
    }
    *far = (struct node){head, 1000};
    for (int round = 0; round < 3; round++) {
        void *first = far;
        QUIET(LAUNCH(bump, 1, 1, NULL, &first));
        QUIET(cuCtxSynchronize());
        nodes[7].value += 10; // between launches
    }
    for (unsigned i = 0; i < NODES; i++)
        wrong += nodes[i].value != i + 3 + (i == 7 ? 30 : 0);
    EXPECT(wrong == 0);
    EXPECT(far->value == 1003);
    OK(cuMemFree((CUdeviceptr)nodes));
    OK(cuMemFree((CUdeviceptr)far));
}

struct part {
    const unsigned *data;
    unsigned index;
    uint64_t sum;
};

static void *sum(void *part_) {
    struct part *part = part_;
    for (unsigned i = part->index; i < WORDS; i += THREADS)
        part->sum += part->data[i];
    return NULL;
}

static void many_threads(void) {
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    unsigned count = WORDS, factor = 3, term = 1;
    unsigned *data = managed(WORDS * sizeof *data);
    uint64_t total = 0, wanted = 0;
    for (unsigned i = 0; i < WORDS; i++) {
        data[i] = i;
        wanted += 3 * i + 1;
    }
    OK(LAUNCH(kernel("affine"), WORDS / 256, 256, NULL, &data, &count, &factor, &term));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < THREADS; i++) {
        parts[i] = (struct part){data, i, 0};
        pthread_create(&threads[i], NULL, sum, &parts[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += parts[i].sum;
    }
    EXPECT(total == wanted);
    OK(cuMemFree((CUdeviceptr)data));
}

// Whatever a copy calls the memory, host or device, it is the same.
static void copies(void) {
    unsigned plain[1024], wrong = 0;
    unsigned *data = managed(sizeof plain);
    CUdeviceptr memory = allocate(sizeof plain);
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 1024; i++)
        data[i] = i;
    OK(cuMemcpyHtoD(memory, data, sizeof plain));
    OK(cuMemsetD32((CUdeviceptr)data, 7, 1024));
    EXPECT(data[0] == 7 && data[1023] == 7);
    OK(cuMemcpyDtoH(data, memory, sizeof plain));
    EXPECT(data[0] == 0 && data[1023] == 1023);
    data[5] = 55;
    OK(cuMemcpyDtoH(plain, (CUdeviceptr)data, sizeof plain));
    for (unsigned i = 0; i < 1024; i++)
        wrong += plain[i] != (i == 5 ? 55 : i);
    EXPECT(wrong == 0);
    plain[0] = 99;
    OK(cuMemcpyHtoDAsync((CUdeviceptr)data, plain, sizeof plain, stream));
    OK(cuMemcpyAsync(memory, (CUdeviceptr)data, sizeof plain, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(data[0] == 99 && data[5] == 55);
    OK(cuMemcpyDtoH(plain, memory, 4));
    EXPECT(plain[0] == 99);
    OK(cuMemPrefetchAsync((CUdeviceptr)data, sizeof plain, at_device(0), 0, stream));
    OK(cuMemPrefetchAsync((CUdeviceptr)data, sizeof plain, at_host(), 0, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(data[1] == 1);
    OK(cuMemFree((CUdeviceptr)data));
    OK(cuMemFree(memory));
}

static void errors(void) {
    CUdeviceptr address = 0;
    CUmemorytype type = 0;
    unsigned is_managed = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 16, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 16, 3));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&address, (size_t)1 << 50, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_HOST));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 99));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && is_managed == 1);
    OK(cuMemAdvise(address, 100, CU_MEM_ADVISE_SET_READ_MOSTLY, at_device(0)));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(address, 101, CU_MEM_ADVISE_SET_READ_MOSTLY, at_device(0)));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(address, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, at_device(99)));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(address, 100, at_device(99), 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(NULL, address, 0, 9));
    OK(cuStreamAttachMemAsync(NULL, address, 0, CU_MEM_ATTACH_GLOBAL));
    CUdeviceptr plain = allocate(100);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(plain, 100, at_device(0), 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(address + 1));
    OK(cuMemFree(address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
}

int main(void) {
    start();
    nested();
    many_threads();
    copies();
    errors();
    return check_failed;
}
