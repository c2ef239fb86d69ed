/* The log of calls that failed, the same in the guest and in the simulated device. It is kept whether or not
 * somebody asks: the program may do so afterwards. Who includes this has included deviceless.c.h before. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "driver_interop/error_log.h"

/* As CUDA promises: a hundred messages, and 25600 bytes hold them all, a remark before them included. */
enum { MESSAGES = 100, LINE_MOST = 248, TEXT_MOST = 25600 };
static const char LOST[] = "Older messages are left out: there is no room for them any more.\n";

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[MESSAGES][LINE_MOST]; /* the latest of all, each in the place that its number leaves it */
static CUlogIterator written;           /* of all times */
static const char *log_file;            /* what CUDA_LOG_FILE says */

static void hold_log(void) {
    pthread_mutex_lock(&log_lock);
}

static void release_log(void) {
    pthread_mutex_unlock(&log_lock);
}

static void before_fork(void) {
    pthread_mutex_lock(&registered_lock);
    hold_log();
}

static void after_fork(void) {
    release_log();
    pthread_mutex_unlock(&registered_lock);
}

__attribute__((constructor)) static void prepare_log(void) {
    log_file = getenv("CUDA_LOG_FILE");
    pthread_atfork(before_fork, after_fork, after_fork);
}

static void append_to(const char *path, const char *line) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    FILE *file = fopen(path, "ae");
    if (file != NULL) {
        fputs(line, file);
        fclose(file);
    } else if (!atomic_flag_test_and_set(&told)) {
        fprintf(stderr, "CUDA_LOG_FILE: %s: %s\n", path, strerror(errno));
    }
}

static void write_line(const char *line) {
    if (log_file == NULL || log_file[0] == '\0') {
        return;
    }
    bool out = strcmp(log_file, "stdout") == 0, err = strcmp(log_file, "stderr") == 0;
    if (out || err) {
        fputs(line, out ? stdout : stderr);
    } else {
        append_to(log_file, line);
    }
}

static void keep(const char *message) {
    char line[LINE_MOST];
    struct timespec now;
    struct tm tm;
    hold_log(); /* localtime_r has a lock too, which a child must not find held */
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    snprintf(line, sizeof line, "[%02d:%02d:%02d.%03ld][%lu][CUDA][E] %s\n", tm.tm_hour, tm.tm_min, tm.tm_sec,
             now.tv_nsec / 1000000, (unsigned long)pthread_self(), message);
    memcpy(lines[written++ % MESSAGES], line, sizeof line);
    release_log();
    write_line(line);
}

/* No lock is held: what is called may wait for another thread whose call has failed too. */
static void tell(char *message, size_t length) {
    struct registered all[REGISTERED_MOST];
    pthread_mutex_lock(&registered_lock);
    memcpy(all, registered, sizeof all);
    pthread_mutex_unlock(&registered_lock);
    for (int i = 0; i < REGISTERED_MOST; i++) {
        if (all[i].of == LOGS) {
            all[i].callback(all[i].data, CU_LOG_LEVEL_ERROR, message, length);
        }
    }
}

/* That something is not ready is an answer, not an error. */
void gf_error_log_add(const char *function, CUresult result) {
    static _Thread_local bool telling; /* a callback that fails in its turn is not told of that */
    const char *name = NULL;
    char message[LINE_MOST - 64];
    if (result == CUDA_ERROR_NOT_READY) {
        return;
    }
    DRIVER(cuGetErrorName)(result, &name);
    int length = snprintf(message, sizeof message, "Returning %d (%s) from %s", result,
                          name != NULL ? name : "unknown", function);
    keep(message);
    if (!telling) {
        telling = true;
        tell(message, (size_t)length);
        telling = false;
    }
}

/* Where those of the lines from `begin` on start that are kept and fit. */
static CUlogIterator fitting(CUlogIterator begin, size_t room) {
    CUlogIterator first = written;
    size_t length = 1;
    while (first != begin && written - first < MESSAGES &&
           (length += strlen(lines[(first - 1) % MESSAGES])) <= room) {
        first--;
    }
    return first;
}

static size_t copy_lines(CUlogIterator begin, char *text, size_t room) {
    CUlogIterator first = fitting(begin, room);
    size_t used = 0;
    if (first != begin) {
        first = room < sizeof LOST ? written : fitting(begin, room - (sizeof LOST - 1));
    }
    if (first != begin && first != written) {
        used = sizeof LOST - 1;
        memcpy(text, LOST, used);
    }
    for (; first != written; first++) {
        size_t length = strlen(lines[first % MESSAGES]);
        memcpy(text + used, lines[first % MESSAGES], length);
        used += length;
    }
    text[used] = '\0';
    return used;
}

/* False: there are lines, and no room for any. */
static bool copy_log(CUlogIterator *iterator, char *text, size_t *size) {
    hold_log();
    CUlogIterator begin = iterator == NULL ? 0 : *iterator < written ? *iterator : written;
    *size = copy_lines(begin, text, *size);
    bool fits = *size > 0 || begin == written;
    if (fits && iterator != NULL) {
        *iterator = written;
    }
    release_log();
    return fits;
}

CUresult DRIVER(cuLogsRegisterCallback)(CUlogsCallback callbackFunc, void *userData,
                                        CUlogsCallbackHandle *callback_out) {
    void *handle;
    ENTER;
    REQUIRE(callbackFunc != NULL);
    CUresult result = enrol(&(struct registered){LOGS, callbackFunc, userData}, &handle);
    if (result == CUDA_SUCCESS && callback_out != NULL) {
        *callback_out = handle;
    }
    return result;
}

CUresult DRIVER(cuLogsUnregisterCallback)(CUlogsCallbackHandle callback) {
    ENTER;
    return strike(LOGS, callback);
}

CUresult DRIVER(cuLogsCurrent)(CUlogIterator *iterator_out, unsigned flags) {
    ENTER;
    REQUIRE(iterator_out != NULL && flags == 0);
    hold_log();
    *iterator_out = written;
    release_log();
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuLogsDumpToFile)(CUlogIterator *iterator, const char *pathToFile, unsigned flags) {
    size_t size = TEXT_MOST;
    ENTER;
    REQUIRE(pathToFile != NULL && flags == 0);
    FILE *file = fopen(pathToFile, "ae");
    REQUIRE(file != NULL);
    char *text = malloc(size);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (text != NULL) {
        copy_log(iterator, text, &size);
        result = fwrite(text, 1, size, file) == size ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }
    free(text);
    return fclose(file) == 0 ? result : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult DRIVER(cuLogsDumpToMemory)(CUlogIterator *iterator, char *buffer, size_t *size, unsigned flags) {
    ENTER;
    REQUIRE(buffer != NULL && size != NULL && *size > 0 && flags == 0);
    REQUIRE(copy_log(iterator, buffer, size));
    return CUDA_SUCCESS;
}
