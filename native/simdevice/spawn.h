/* Threads of the driver's own. */
#pragma once

/* Starts a thread that nobody joins, to which the program's signals do not go. Returns an error number. */
int sim_spawn(void *(*work)(void *argument));
