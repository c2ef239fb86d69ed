#define _GNU_SOURCE
#include "ipc.h"
#include "shareable.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAGIC     0x70694647u /* GFip */
#define STARTED   22          /* the field of /proc/PID/stat, from 1 on */
#define NAME_SIZE 32

_Static_assert(sizeof(struct sim_ipc_handle) == CU_IPC_HANDLE_SIZE, "CUDA says how long a handle is");

/* When a process began; 0: there is none that can be looked at. */
static uint64_t started(uint32_t pid) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the second field, which may hold anything */
    for (int field = 2; at && field < STARTED; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static void name(char text[NAME_SIZE], uint32_t kind, uint64_t secret) {
    snprintf(text, NAME_SIZE, "ipc-%u-%016llx-", kind, (unsigned long long)secret);
}

/* Elsewhere 0 means "none". */
static int not_zero(int file) {
    if (file != 0)
        return file;
    file = fcntl(0, F_DUPFD_CLOEXEC, 1);
    close(0);
    return file;
}

int sim_ipc_new(enum sim_ipc_kind kind, const struct sim_device *device, uint64_t size,
                struct sim_ipc_handle *handle) {
    char text[NAME_SIZE];
    *handle = (struct sim_ipc_handle){.magic = MAGIC, .kind = kind, .pid = (uint32_t)getpid()};
    handle->started = started(handle->pid);
    if (!handle->started || getrandom(&handle->secret, sizeof handle->secret, 0) != sizeof handle->secret)
        return -1;
    name(text, kind, handle->secret);
    int file = not_zero(sim_shareable_new(text, device, size));
    handle->file = (uint32_t)file;
    return file;
}

CUresult sim_ipc_open(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind, int *file,
                      struct sim_device **device, uint64_t *size) {
    char path[48], text[NAME_SIZE];
    SIM_REQUIRE(handle->magic == MAGIC && handle->kind == kind && handle->started);
    if (handle->pid == (uint32_t)getpid() && handle->started == started(handle->pid))
        return CUDA_ERROR_INVALID_CONTEXT;
    name(text, kind, handle->secret);
    snprintf(path, sizeof path, "/proc/%u/fd/%u", handle->pid, handle->file);
    SIM_REQUIRE(started(handle->pid) == handle->started);
    SIM_REQUIRE(sim_shareable_is(path, text)); /* to open what it is not might wait, or do harm */
    *file = not_zero(open(path, O_RDWR | O_CLOEXEC));
    SIM_REQUIRE(*file >= 0);
    if (sim_shareable_check(*file, text, device, size) && *device)
        return CUDA_SUCCESS;
    close(*file);
    return CUDA_ERROR_INVALID_VALUE;
}
