#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aside.h"
#include "wire/uncancelled.h"

_Atomic int gf_log_level = GF_LOG_TRACE;
static int log_fd = STDERR_FILENO;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

/* What a server says is text and nothing else: no other line, nothing that a terminal obeys. */
static void tame(char *text, int size) {
    for (int i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        bool more = c == 0xc2 && ((unsigned char)text[i + 1] & 0xe0) == 0x80; /* U+0080 to U+009F */
        if (c < ' ' || c == 0x7f || more) {
            text[i] = '?';
        }
        if (more) {
            text[++i] = '?';
        }
    }
}

/* One write per line, so that lines of several threads and processes do not mix. */
__attribute__((format(printf, 2, 0))) static void write_line(int fd, const char *format, va_list arguments) {
    char line[1536];
    int size = snprintf(line, sizeof line, "gpuferry[%d]: ", (int)getpid());
    int more = vsnprintf(line + size, sizeof line - (size_t)size - 1, format, arguments);
    if (more > 0) {
        size += more < (int)sizeof line - size - 1 ? more : (int)sizeof line - size - 2;
    }
    line[size] = '\0';
    tame(line, size);
    line[size++] = '\n';
    if (write(fd, line, (size_t)size) < 0) {
        /* nowhere to say so */
    }
}

/* What is wrong with the log's own settings, which cannot be logged yet. */
__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_line(STDERR_FILENO, format, arguments);
    va_end(arguments);
}

static enum gf_log_level wanted_level(void) {
    static const char *const names[] = {
        [GF_LOG_ERROR] = "error", [GF_LOG_INFO] = "info", [GF_LOG_DEBUG] = "debug", [GF_LOG_TRACE] = "trace"};
    const char *level = getenv("GPUFERRY_LOG");
    if (level == NULL || level[0] == '\0') {
        return GF_LOG_ERROR;
    }
    for (enum gf_log_level i = GF_LOG_ERROR; i <= GF_LOG_TRACE; i++) {
        if (strcmp(level, names[i]) == 0) {
            return i;
        }
    }
    complain("GPUFERRY_LOG=%s is none of error, info, debug and trace. Taking error.", level);
    return GF_LOG_ERROR;
}

static void open_log(void) {
    const char *file = getenv("GPUFERRY_LOG_FILE");
    if (file != NULL && file[0] != '\0') {
        int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd >= 0) {
            log_fd = gf_put_aside(fd);
        } else {
            complain("cannot write GPUFERRY_LOG_FILE=%s: %s. Writing to stderr.", file, strerror(errno));
        }
    }
    atomic_store(&gf_log_level, (int)wanted_level());
}

void gf_log_write(enum gf_log_level level, const char *format, ...) {
    GF_UNCANCELLED;
    int saved = errno;
    pthread_once(&opened, open_log);
    if ((int)level <= atomic_load(&gf_log_level)) {
        va_list arguments;
        va_start(arguments, format);
        write_line(level == GF_LOG_ERROR ? STDERR_FILENO : log_fd, format, arguments);
        va_end(arguments);
    }
    errno = saved;
}
