// Another process's memory on another device: it is opened there where both devices reach each other, and
// else said to be out of reach.
//
// suite: devices
#include "driver.h"

#include "processes.h"

enum { WORDS = 1 << 16 };

static void enter(int number) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, number));
    OK(cuCtxSetCurrent(context));
}

static void open_it(void) {
    CUipcMemHandle handle;
    CUdeviceptr opened;
    int can = -1;
    unsigned word = 0;
    hear(&handle, sizeof handle);
    enter(1);
    OK(cuDeviceCanAccessPeer(&can, 1, 0));
    if (!can) {
        FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
              cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        return;
    }
    OK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuMemcpyDtoH(&word, opened, sizeof word));
    EXPECT(word == 42);
    OK(cuIpcCloseMemHandle(opened));
}

int main(int count, char **arguments) {
    if (strcmp(role_of(count, arguments), "child") == 0) {
        open_it();
        return check_failed;
    }
    CUipcMemHandle handle;
    pid_t child = spawn(arguments[0], "child");
    enter(0);
    CUdeviceptr words = allocate(4 * WORDS);
    unsigned word = 0;
    OK(cuMemsetD32(words, 42, WORDS));
    OK(cuMemcpyDtoH(&word, words, sizeof word));
    EXPECT(word == 42);
    OK(cuIpcGetMemHandle(&handle, words));
    tell(&handle, sizeof handle);
    EXPECT(ended_well(child));
    return check_failed;
}
