// What calls that failed leave in the driver's log: for callbacks, for whoever asks afterwards, and in the
// file that CUDA_LOG_FILE names.
//
// device: sim   the wording of what is left out, and which calls have a message, are NVIDIA's own
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver.h"

#define SAYS "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuDeviceGetCount"

static unsigned told, nested, malformed;
static char last[256];
static atomic_bool go_on;

static void fail(void) {
    malformed += cuDeviceGetCount(NULL) != CUDA_ERROR_INVALID_VALUE;
}

static void CUDA_CB hear(void *data, CUlogLevel level, char *message, size_t length) {
    malformed += data != &told || level != CU_LOG_LEVEL_ERROR || strlen(message) != length;
    snprintf(last, sizeof last, "%s", message);
    told++;
    fail(); // in its turn: kept, and nobody is told
    nested++;
}

static unsigned lines(const char *text) {
    unsigned count = 0;
    while ((text = strchr(text, '\n')) != NULL) {
        count++, text++;
    }
    return count;
}

static void *fail_elsewhere(void *argument) {
    (void)argument;
    fail();
    return NULL;
}

static void CUDA_CB hold(void *data) {
    (void)data;
    while (!atomic_load(&go_on)) {
        sched_yield();
    }
}

static void callbacks(void) {
    CUlogsCallbackHandle handle = NULL;
    OK(cuLogsRegisterCallback(hear, &told, &handle));
    EXPECT(handle != NULL);
    fail();
    EXPECT(told == 1 && nested == 1 && strcmp(last, SAYS) == 0);
    OK(cuLaunchHostFunc(NULL, hold, NULL));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    EXPECT(told == 1); // that was an answer
    atomic_store(&go_on, true);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(told == 2);
    OK(cuLogsUnregisterCallback(handle));
    fail();
    EXPECT(told == 2);
    OK(cuLogsRegisterCallback(hear, &told, NULL)); // for good
    fail();
    EXPECT(told == 3 && malformed == 0);
}

static void dumps(void) {
    static char text[25600];
    CUlogIterator mark = 0, here = 0;
    size_t size = sizeof text;
    OK(cuLogsCurrent(&mark, 0));
    OK(cuLogsDumpToMemory(&mark, text, &size, 0));
    EXPECT(size == 0 && text[0] == '\0');
    here = mark;
    fail();
    size = sizeof text;
    OK(cuLogsDumpToMemory(&mark, text, &size, 0));
    EXPECT(size == strlen(text) && lines(text) == 2 && text[size - 1] == '\n'); // one of the callback's
    EXPECT(strstr(text, "][CUDA][E] " SAYS "\n") != NULL && mark == here + 2);

    mark = here;
    size /= 2; // and no room for the end
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&mark, text, &size, 0));
    EXPECT(size == 0 && mark == here);
    size = sizeof text;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&mark, NULL, &size, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&mark, text, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&mark, text, &size, 1));

    for (int i = 0; i < 120; i++) {
        fail();
    }
    size = sizeof text;
    OK(cuLogsDumpToMemory(NULL, text, &size, 0));
    EXPECT(lines(text) == 101 && text[0] != '['); // a remark that there were more
    size = 300;
    OK(cuLogsDumpToMemory(NULL, text, &size, 0));
    EXPECT(size < 300 && text[0] != '[' && lines(text) > 1 && strstr(text, SAYS "\n") != NULL);
}

static void file_of(char path[64], const char *name) {
    snprintf(path, 64, "/tmp/gpuferry-error-log-%s-%d", name, (int)getpid());
}

static unsigned lines_of(const char *path) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    EXPECT(fclose(file) == 0 && unlink(path) == 0);
    EXPECT(strstr(text, "][CUDA][E] " SAYS "\n") != NULL);
    return lines(text);
}

static void files(void) {
    char path[64];
    file_of(path, "dump");
    CUlogIterator mark = 0;
    OK(cuLogsCurrent(&mark, 0));
    fail();
    OK(cuLogsDumpToFile(&mark, path, 0));
    EXPECT(lines_of(path) == 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile(&mark, "/nowhere/at/all", 0));
    file_of(path, "asked");
    EXPECT(lines_of(path) > 120);
}

int main(int argc, char **argv) {
    char path[64];
    (void)argc;
    file_of(path, "asked");
    if (getenv("CUDA_LOG_FILE") == NULL) { // is read when the driver is loaded
        setenv("CUDA_LOG_FILE", path, 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    start();
    callbacks();
    dumps();
    files();
    expect_it_still_works();
    return check_failed;
}
