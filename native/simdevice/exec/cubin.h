/* The ELF file that cuLinkComplete returns: compiler/cubin.py makes it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* What it holds for the simulated device: a linked image (sniff.h). `limit` 0: the file's size is not known.
 * False: it is none of ours, so it holds machine code, or it is damaged. */
bool sim_cubin_content(const void *elf, size_t limit, const void **content, size_t *size);
