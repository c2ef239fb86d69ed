#include "turns.h"
#include "config.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

/* A process has its turn while any of its kernels runs there. The lock of a file ends with its process. */
static struct turn {
    pthread_mutex_t mutex;
    int file;
    unsigned kernels;
} turns[SIM_MAX_DEVICES] = {[0 ... SIM_MAX_DEVICES - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER, .file = -1}};

static int open_file(const char *folder, int device) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/gpu%d", folder, device);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        sim_message(SIM_LOG_ERROR, "%s: %s: kernels do not take turns", path, strerror(errno));
    return file;
}

static void lock_file(int file, int operation) {
    while (file >= 0 && flock(file, operation) != 0 && errno == EINTR)
        ;
}

void sim_turn_begin(int device) {
    const char *folder = sim_config_get()->turns;
    if (!folder)
        return;
    struct turn *turn = &turns[device];
    pthread_mutex_lock(&turn->mutex);
    if (turn->file < 0)
        turn->file = open_file(folder, device);
    if (turn->kernels++ == 0)
        lock_file(turn->file, LOCK_EX);
    pthread_mutex_unlock(&turn->mutex);
}

void sim_turn_end(int device) {
    if (!sim_config_get()->turns)
        return;
    struct turn *turn = &turns[device];
    pthread_mutex_lock(&turn->mutex);
    if (--turn->kernels == 0)
        lock_file(turn->file, LOCK_UN);
    pthread_mutex_unlock(&turn->mutex);
}
