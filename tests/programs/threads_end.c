// A process whose main thread ends by pthread_exit ends with the last thread of the program, whoever made it,
// when the device has done what it was given: with status 0, and with its functions for the exit.
#include <pthread.h>
#include <threads.h>
#include <unistd.h>

#include "driver.h"

static pthread_t main_thread, second;

static void at_the_end(void) {
    OK(cuCtxSetCurrent(context));
    expect_it_still_works();
    if (check_failed)
        _exit(1);
}

static void told(void *unused) {
    (void)unused;
    printf("the stream has come to its function\n");
    fflush(stdout);
}

static int last(void *unused) {
    (void)unused;
    pthread_join(second, NULL);
    OK(cuCtxSetCurrent(context));
    expect_it_still_works();
    OK(cuLaunchHostFunc(NULL, told, NULL));
    return 3;
}

static void *goes_on(void *unused) {
    pthread_join(main_thread, NULL);
    OK(cuCtxSetCurrent(context));
    expect_it_still_works();
    return unused;
}

int main(void) {
    thrd_t thread;
    start();
    atexit(at_the_end);
    main_thread = pthread_self();
    EXPECT(pthread_create(&second, NULL, goes_on, NULL) == 0);
    EXPECT(thrd_create(&thread, last, NULL) == thrd_success);
    EXPECT(thrd_detach(thread) == thrd_success);
    pthread_exit(NULL);
}
