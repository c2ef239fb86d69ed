/* Unmaps that the server may not have done yet. */
#pragma once
#include <stdbool.h>

/* One was sent. */
void gf_unmaps_note(void);
/* Before a stream waits for the program: an unmap that is not done by then may wait for that stream too, and
 * the server's dispatcher, which would hear of what the program does, for the unmap. Where other streams may
 * be waiting for the program already (not `alone`, or a word has been waited for), only for unmaps that
 * nothing holds up. */
void gf_unmaps_await(bool alone);
void gf_unmaps_await_for_word(bool alone);
