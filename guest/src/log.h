/* Lines on stderr, or in GPUFERRY_LOG_FILE, for the program's user: never on stdout. */
#pragma once
#include <stdatomic.h>

enum gf_log_level {
    GF_LOG_ERROR, /* always printed: one line, cause and next step */
    GF_LOG_INFO,
    GF_LOG_DEBUG,
    GF_LOG_TRACE,
};

/* Until the environment was read it lets everything through to gf_log_write, which reads it. */
extern _Atomic int gf_log_level;

/* Writes a line, unless GPUFERRY_LOG asks for less than this level. */
void gf_log_write(enum gf_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define gf_log(level, ...)                                                                                   \
    do {                                                                                                     \
        if (__builtin_expect((int)(level) <= atomic_load_explicit(&gf_log_level, memory_order_relaxed), 0))  \
            gf_log_write(level, __VA_ARGS__);                                                                \
    } while (0)
#define gf_error(...) gf_log_write(GF_LOG_ERROR, __VA_ARGS__)
#define gf_info(...)  gf_log(GF_LOG_INFO, __VA_ARGS__)
#define gf_debug(...) gf_log(GF_LOG_DEBUG, __VA_ARGS__)
#define gf_trace(...) gf_log(GF_LOG_TRACE, __VA_ARGS__)
