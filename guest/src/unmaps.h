/* Unmaps that the server may not have done yet. */
#pragma once

/* One was sent. */
void gf_unmaps_note(void);
/* Before a stream waits for the program: an unmap that is not done by then may wait for that stream too, and
 * the server's dispatcher, which would hear of what the program does, for the unmap. Where other streams may
 * be waiting for the program already, only for those that nothing holds up. */
void gf_unmaps_await(void);
