// Memory that program and device share, in system calls and in calls of the driver that read it, just after a
// launch, when its pages are the device's: files, pipes and sockets; names, images and lists of the
// program's.
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WORDS = 1 << 14, BYTES = WORDS * 4 };

static unsigned *data;
static CUfunction affine;

// Whatever it held is w + 1 after this, and its pages are the device's.
static void launched(void) {
    unsigned count = WORDS, factor = 1, term = 1;
    QUIET(LAUNCH(affine, WORDS / 256, 256, NULL, &data, &count, &factor, &term));
    QUIET(cuCtxSynchronize());
}

static void begin(void) {
    for (unsigned i = 0; i < WORDS; i++)
        data[i] = i;
    launched();
}

static int holds(unsigned more) {
    for (unsigned i = 0; i < WORDS; i++)
        if (data[i] != i + more)
            return 0;
    return 1;
}

static void files(int fd) {
    struct iovec halves[] = {{data, BYTES / 2}, {data + WORDS / 2, BYTES / 2}};
    begin();
    EXPECT(write(fd, data, BYTES) == BYTES);
    launched();
    EXPECT(pread(fd, data, BYTES, 0) == BYTES && holds(1));
    launched();
    EXPECT(pwrite(fd, data, BYTES, 0) == BYTES);
    launched();
    EXPECT(lseek(fd, 0, SEEK_SET) == 0 && read(fd, data, BYTES) == BYTES && holds(2));
    launched();
    EXPECT(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, halves, 2) == BYTES);
    launched();
    EXPECT(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, halves, 2) == BYTES && holds(3));
    launched();
    EXPECT(preadv(fd, halves, 2, 0) == BYTES && holds(3));
    launched();
    EXPECT(pwritev(fd, halves, 2, 0) == BYTES);
    launched();
    EXPECT(preadv2(fd, halves, 2, 0, 0) == BYTES && holds(4));
    launched();
    EXPECT(pwritev2(fd, halves, 2, 0, 0) == BYTES);
    launched();
    EXPECT(holds(6));
}

// Memory of this process, by way of the kernel; a pipe's; and what the kernel makes up.
static void memory(void) {
    static unsigned copy[1024];
    struct iovec own = {copy, sizeof copy}, shared = {data, sizeof copy};
    int ends[2];
    begin();
    EXPECT(process_vm_readv(getpid(), &own, 1, &shared, 1, 0) == sizeof copy && copy[1023] == 1024);
    launched();
    EXPECT(process_vm_writev(getpid(), &own, 1, &shared, 1, 0) == sizeof copy && data[1023] == 1024);
    launched();
    EXPECT(process_vm_readv(getpid(), &shared, 1, &own, 1, 0) == sizeof copy && data[1023] == 1024);
    EXPECT(pipe2(ends, O_NONBLOCK) == 0);
    launched();
    EXPECT(vmsplice(ends[1], &shared, 1, 0) == sizeof copy);
    EXPECT(read(ends[0], copy, sizeof copy) == sizeof copy && copy[1023] == 1025);
    launched();
    EXPECT(getrandom(data, sizeof copy, 0) == sizeof copy);
    close(ends[0]);
    close(ends[1]);
}

static void streams(FILE *file) {
    begin();
    rewind(file);
    EXPECT(fwrite(data, 4, WORDS, file) == WORDS);
    launched();
    rewind(file);
    EXPECT(fread(data, 4, WORDS, file) == WORDS && holds(1));
}

static void sockets(void) {
    int ends[2];
    struct iovec part = {data, 4096};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    begin();
    EXPECT(send(ends[0], data, 4096, 0) == 4096);
    launched();
    EXPECT(recv(ends[1], data, 4096, 0) == 4096 && data[1] == 2 && data[1024] == 1026);
    begin();
    EXPECT(sendto(ends[0], data, 4096, 0, NULL, 0) == 4096);
    launched();
    EXPECT(recvfrom(ends[1], data, 4096, 0, NULL, NULL) == 4096 && data[1] == 2);
    begin();
    EXPECT(sendmsg(ends[0], &message, 0) == 4096);
    launched();
    EXPECT(recvmsg(ends[1], &message, 0) == 4096 && data[1] == 2);
    // The list of messages, its head and what comes beside it lie in such memory too.
    struct mmsghdr *messages = (struct mmsghdr *)(data + 2048);
    begin();
    memset(messages, 0, sizeof *messages);
    messages->msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    unsigned none = 0, factor = 1, term = 0;
    QUIET(LAUNCH(affine, 1, 1, NULL, &data, &none, &factor, &term));
    EXPECT(sendmmsg(ends[0], messages, 1, 0) == 1 && messages->msg_len == 4096);
    messages->msg_hdr.msg_control = data + 4096;
    messages->msg_hdr.msg_controllen = 64;
    QUIET(LAUNCH(affine, 1, 1, NULL, &data, &none, &factor, &term));
    EXPECT(recvmmsg(ends[1], messages, 1, MSG_DONTWAIT, NULL) == 1 && messages->msg_len == 4096 &&
           data[1] == 2);
    EXPECT(messages->msg_hdr.msg_controllen == 0);
    close(ends[0]);
    close(ends[1]);
}

// What the driver reads of the program's is read as any memory of its own.
static void calls(void) {
    static const char name[] = "affine";
    CUmodule again = NULL;
    CUfunction found = NULL;
    CUdeviceptr target = allocate(64);
    char *text = (char *)data;
    memset(data, 0, BYTES);
    EXPECT(sizeof kernels_ptx <= BYTES);
    memcpy(text, kernels_ptx, sizeof kernels_ptx);
    unsigned none = 0, factor = 1, term = 0;
    OK(LAUNCH(affine, 1, 1, NULL, &target, &none, &factor, &term));
    OK(cuModuleLoadData(&again, text));
    memcpy(text, name, sizeof name);
    OK(LAUNCH(affine, 1, 1, NULL, &target, &none, &factor, &term));
    OK(cuModuleGetFunction(&found, again, text));
    void **arguments = (void **)text;
    CUdeviceptr *address = (CUdeviceptr *)(text + 4096);
    unsigned *numbers = (unsigned *)(text + 8192);
    *address = target;
    numbers[0] = 16, numbers[1] = 0, numbers[2] = 7;
    for (int i = 0; i < 4; i++)
        arguments[i] = i == 0 ? (void *)address : (void *)&numbers[i - 1];
    OK(LAUNCH(affine, 1, 1, NULL, &target, &none, &factor, &term));
    OK(cuLaunchKernel(found, 1, 1, 1, 16, 1, 1, 0, NULL, arguments, NULL));
    unsigned got = 0;
    OK(cuMemcpyDtoH(&got, target, 4));
    EXPECT(got == 7);
    OK(cuMemFree(target));
    OK(cuModuleUnload(again));
}

static void all(void) {
    FILE *file = tmpfile();
    files(fileno(file));
    streams(file);
    fclose(file);
    memory();
    sockets();
    calls();
}

int main(void) {
    CUdeviceptr address = 0;
    start();
    affine = kernel("affine");
    OK(cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL));
    data = (unsigned *)address;
    all();
    OK(cuMemFree(address));
    OK(cuMemHostAlloc((void **)&data, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    all();
    int ends[2];
    void *volatile nowhere = (void *)8;
    EXPECT(pipe(ends) == 0 && write(ends[1], nowhere, 4) == -1);
    OK(cuMemFreeHost(data));
    return check_failed;
}
