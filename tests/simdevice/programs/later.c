/* Memory that is given back is freed by a thread of the driver, which here waits at its `close` until it may
 * go on. Build and run: see tests/simdevice/test_process.py. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY  300 /* more than there are places */
#define SMALL (4u << 20)

#define OK(call) check((call) == CUDA_SUCCESS, #call)

static sem_t gate; /* how many may be closed */
static _Atomic unsigned closed;
static __thread bool of_the_program;
static size_t all;

static void check(bool fine, const char *what) {
    if (!fine) {
        printf("%s\n", what);
        exit(1);
    }
}

static bool is_memory(const char *link) {
    char name[128];
    ssize_t length = readlink(link, name, sizeof name - 1);
    return length > 0 && strncmp(name, "/memfd:gpuferry-sim", 19) == 0;
}

/* The driver's calls come here. */
int close(int fd) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (is_memory(link)) {
        check(!of_the_program, "memory is freed by who gives it back");
        sem_wait(&gate);
        atomic_fetch_add(&closed, 1);
    }
    return (int)syscall(SYS_close, fd);
}

static CUmemGenericAllocationHandle create(size_t size) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, size, &properties, 0));
    return handle;
}

static void *needs_all(void *unused) {
    (void)unused;
    of_the_program = true;
    CUmemGenericAllocationHandle handle = create(all);
    check(closed == 1, "memory is given out before it is free");
    return (void *)handle;
}

static void *opens_the_gate(void *unused) {
    (void)unused;
    for (int i = 0; i < MANY + 1; i++)
        sem_post(&gate);
    return NULL;
}

static bool has_memory(void) {
    bool found = false;
    char line[512], link[300];
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
        found |= is_memory(link);
    }
    closedir(folder);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "memfd:gpuferry-sim") != NULL;
    fclose(maps);
    return found;
}

int main(void) {
    CUcontext context;
    CUdeviceptr at, again;
    pthread_t thread;
    size_t available;
    void *handle;
    static CUmemGenericAllocationHandle many[MANY];
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    sem_init(&gate, 0, 0);
    of_the_program = true;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo(&available, &all));
    OK(cuMemAddressReserve(&at, all, 0, 0, 0));
    CUmemGenericAllocationHandle first = create(all);
    OK(cuMemMap(at, all, 0, first, 0));
    OK(cuMemSetAccess(at, all, &access, 1));
    OK(cuMemsetD8(at, 1, SMALL));
    OK(cuMemUnmap(at, all));
    OK(cuMemRelease(first));
    OK(cuMemGetInfo(&available, &all));
    check(available == all, "memory that was given back counts");

    pthread_create(&thread, NULL, needs_all, NULL);
    sem_post(&gate);
    pthread_join(thread, &handle);
    unsigned char byte = 1;
    OK(cuMemMap(at, all, 0, (CUmemGenericAllocationHandle)handle, 0));
    OK(cuMemSetAccess(at, all, &access, 1));
    OK(cuMemcpyDtoH(&byte, at, 1));
    check(byte == 0, "new memory has what was there before");
    OK(cuMemUnmap(at, all));
    OK(cuMemRelease((CUmemGenericAllocationHandle)handle));
    OK(cuMemAddressReserve(&again, all, 0, at, 0)); /* elsewhere */
    OK(cuMemAddressFree(again, all));

    pthread_create(&thread, NULL, opens_the_gate, NULL);
    for (int i = 0; i < MANY; i++)
        many[i] = create(SMALL);
    for (int i = 0; i < MANY; i++)
        OK(cuMemRelease(many[i]));
    pid_t child = fork();
    if (child == 0)
        _exit(has_memory());
    int status;
    waitpid(child, &status, 0);
    check(status == 0, "a child keeps memory that was given back");
    pthread_join(thread, NULL);
    check(closed == MANY + 2 && !has_memory(), "something is left");
    printf("freed %u\n", closed);
    return 0;
}
