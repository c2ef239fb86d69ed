/* Messages to stderr, as much as GPUFERRY_SIM_LOG asks for. Errors in the user's settings are always shown.
 */
#pragma once
#include <stdbool.h>

enum sim_log_level { SIM_LOG_ERROR, SIM_LOG_INFO, SIM_LOG_DEBUG };

/* Errors are said at a bounded rate, and control characters in what is said (names and texts of programs) are
 * replaced: who reads a terminal or a log believes neither. */
void sim_message_set_level(enum sim_log_level level);
/* What is said goes to this descriptor too: to whoever runs the program, where that is not who runs the
 * driver. */
void sim_message_set_copy(int fd);
bool sim_message_has_copy(void);
/* It goes there alone: both are the same person. */
void sim_message_only_copy(void);
void sim_message(enum sim_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of a program's kernel, as CUDA says it. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
