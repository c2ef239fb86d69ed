/* What nobody waits for, done by a thread: to free memory takes time with its size. */
#pragma once
#include <stdbool.h>

/* Calls `act`, after all that came before it; it may take no lock that a caller holds. Done at once if there
 * can be no thread. */
void sim_later(void (*act)(void *argument), void *argument);
/* Waits until nothing is left to do. False: there was nothing. */
bool sim_later_wait(void);
