/* The life of the process around a session: fork and exit. */
#pragma once

/* Sees to it that a forked child leaves the session alone and that exit closes it. To be called once, when
 * the session stands. */
void gf_process_watch(void);
