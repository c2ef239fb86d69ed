/* The life of the process around a session: fork and exit. */
#pragma once

/* Once, when the session stands. */
void gf_process_watch(void);
