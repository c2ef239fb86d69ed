/* Whether kernels are loaded and never run, so that machine code, of which only the metadata is known, can be
 * loaded too. What a program computes then means nothing. */
#pragma once
#include <stdbool.h>

void sim_skip_code(bool skip); /* before anything is loaded */
bool sim_code_skipped(void);
/* Says on stderr that results mean nothing, when that is so and was not said yet. */
void sim_skip_tell(void);
/* It will be said again: what comes is another program's. */
void sim_skip_tell_again(void);
