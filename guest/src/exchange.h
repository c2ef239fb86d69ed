/* What program and device share is exchanged in calls. This is for a program that makes none: it polls memory
 * that a kernel writes, or writes what a kernel polls. */
#pragma once

/* The device gets work. From now on `exchange` is called, by a thread of its own, soon after each
 * gf_exchange_soon; the longer the work takes, the later. */
void gf_exchange_begin(void (*exchange)(void));
/* The program touched what it shares. May be called by a handler of signals. */
void gf_exchange_soon(void);
