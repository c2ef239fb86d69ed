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

static void open_log(void) {
    const char *level = getenv("GPUFERRY_LOG"), *file = getenv("GPUFERRY_LOG_FILE");
    enum gf_log_level wanted = GF_LOG_ERROR;
    if (level != NULL) {
        wanted = strcmp(level, "trace") == 0   ? GF_LOG_TRACE
                 : strcmp(level, "debug") == 0 ? GF_LOG_DEBUG
                 : strcmp(level, "info") == 0  ? GF_LOG_INFO
                                               : GF_LOG_ERROR;
    }
    if (file != NULL && file[0] != '\0') {
        int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd >= 0) {
            log_fd = gf_put_aside(fd);
        }
    }
    atomic_store(&gf_log_level, (int)wanted);
}

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
void gf_log_write(enum gf_log_level level, const char *format, ...) {
    pthread_once(&opened, open_log);
    if ((int)level > atomic_load(&gf_log_level)) {
        return;
    }
    GF_UNCANCELLED;
    int saved = errno;
    char line[1536];
    int size = snprintf(line, sizeof line, "gpuferry[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + size, sizeof line - (size_t)size - 1, format, arguments);
    va_end(arguments);
    if (more > 0) {
        size += more < (int)sizeof line - size - 1 ? more : (int)sizeof line - size - 2;
    }
    line[size] = '\0';
    tame(line, size);
    line[size++] = '\n';
    int fd = level == GF_LOG_ERROR && log_fd != STDERR_FILENO ? STDERR_FILENO : log_fd;
    if (write(fd, line, (size_t)size) < 0) {
        /* nowhere to say so */
    }
    errno = saved;
}
