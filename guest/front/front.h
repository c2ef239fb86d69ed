/* What the library in front of the driver does for it (guest/DESIGN.md, How it is found). The driver has need
 * of it; only where it was preloaded do its functions stand before those of libc. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* From now on faults are first told to `resolve`: whether the access may be made again. Also after the
 * program has set a handler by a way that this library does not see. Its handler for SIGSEGV stays the first
 * one whatever handlers the program sets: those get all faults that are not of memory shared with the device.
 */
void gpuferry_resolve_faults(bool (*resolve)(uint64_t address, bool write));

/* From now on handlers of the program's first ask `hold`, in the thread that they interrupt: whether the
 * signal is put back, and stays blocked in this thread until the driver unblocks it. Signals that a fault or
 * abort makes are not put back. */
void gpuferry_hold_handlers(bool (*hold)(int number));

/* From now on `reach` is told which memory a system call is about to touch: whether anything had to be done
 * for it. */
void gpuferry_reach_first(bool (*reach)(uint64_t address, uint64_t size, bool write));

/* From now on `tell` is called in the program's last thread, when it ends: the process would, too, if there
 * were no threads of the driver. Where the program's threads are not known here it never is. */
void gpuferry_when_threads_ended(void (*tell)(void));
/* As pthread_create: a thread that is none of the program's. */
int gpuferry_begin_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument);
