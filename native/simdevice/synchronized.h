/* What follows when the host has waited for a stream, an event or a context. */
#pragma once
#include "sim.h"

/* From now on `action` is called then; there is one. */
void sim_on_synchronized(void (*action)(void));
void sim_synchronized(void);
