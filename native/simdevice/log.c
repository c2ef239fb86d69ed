#include "log.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int current_level = SIM_LOG_ERROR;

void sim_message_set_level(enum sim_log_level level) {
    atomic_store_explicit(&current_level, level, memory_order_relaxed);
}

void sim_message(enum sim_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed))
        return;
    char line[1024];
    int length = snprintf(line, sizeof line, "gpuferry sim[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    /* one write per line, so that lines of several processes do not mix */
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
}
