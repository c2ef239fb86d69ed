/* Handlers of signals, between what libc offers to set them (handlers.c) and the faults of shared memory. */
#pragma once
#include <signal.h>
#include <stdbool.h>

/* libc's own. */
int gf_set_action(int number, const struct sigaction *action, struct sigaction *old);

/* What comes behind our handler of SIGSEGV. False: we have none, so the program's is set as any other. */
bool gf_fault_change(const struct sigaction *action, struct sigaction *old);
/* The program has a handler for this signal, which waits while a fault is resolved. */
void gf_fault_hold(int number);
