/* Threads of ours. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Runs it on a thread that nobody joins and that takes no signals: handlers of the program run in its own.
 * `stack`: bytes; 0: as many as are usual. False: there is none to be had. */
bool gf_thread_begin(void *(*run)(void *argument), void *argument, size_t stack);
/* The same for one that is joined. */
bool gf_thread_begin_joined(pthread_t *thread, void *(*run)(void *argument), void *argument, size_t stack);
