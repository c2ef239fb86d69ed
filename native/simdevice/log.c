#include "log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int current_level = SIM_LOG_ERROR, copy = -1;
static _Atomic bool only_copy;

void sim_message_set_copy(int fd) {
    atomic_store(&copy, fd);
}

bool sim_message_has_copy(void) {
    return atomic_load(&copy) >= 0;
}

void sim_message_set_level(enum sim_log_level level) {
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

void sim_message_only_copy(void) {
    atomic_store(&only_copy, true);
}

/* So many errors at once, and so many more in a second: a kernel that fails is launched as often as one
 * likes. */
enum { BURST = 100, PER_SECOND = 10 };

static bool may_say(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static time_t since;
    static int left = BURST;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    time_t passed = now.tv_sec - since;
    since = now.tv_sec;
    left = passed > BURST / PER_SECOND || left + passed * PER_SECOND > BURST
               ? BURST
               : left + (int)passed * PER_SECOND;
    bool may = left > 0;
    left -= may;
    pthread_mutex_unlock(&lock);
    return may;
}

/* Escape sequences begin with a control character, of one byte or (U+0080 to U+009F) of two in UTF-8. */
static void blot(char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i], before = i > 0 ? (unsigned char)text[i - 1] : 0;
        if (c < ' ' || c == 0x7f || (c >= 0x80 && c < 0xa0 && before == 0xc2))
            text[i] = '?';
    }
}

/* One write for a line, so that lines of several processes do not mix. */
static void put_line(const char *prefix, const char *format, va_list arguments) {
    char line[1024];
    int start = snprintf(line, sizeof line, "%s", prefix);
    int length = start + vsnprintf(line + start, sizeof line - (size_t)start - 1, format, arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    blot(line, (size_t)length);
    line[length++] = '\n';
    int fd = atomic_load(&copy);
    ssize_t written = 0;
    if (fd < 0 || !atomic_load(&only_copy))
        written = write(STDERR_FILENO, line, (size_t)length);
    if (fd >= 0)
        written = write(fd, line, (size_t)length);
    (void)written;
}

void sim_message(enum sim_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed) ||
        (level == SIM_LOG_ERROR && !may_say()))
        return;
    char prefix[40];
    snprintf(prefix, sizeof prefix, "gpuferry sim[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    put_line(prefix, format, arguments);
    va_end(arguments);
}

void sim_say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (may_say())
        put_line("", format, arguments);
    va_end(arguments);
}
