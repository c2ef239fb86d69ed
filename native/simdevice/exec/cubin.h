/* ELF files: what cuLinkComplete returns (compiler/cubin.py makes it), and machine code. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* What it holds for the simulated device: a linked image (sniff.h). `limit` 0: the file's size is not known.
 * False: it is none of ours, so it holds machine code, or it is damaged. */
bool sim_cubin_content(const void *elf, size_t limit, const void **content, size_t *size);
/* Where the last of its parts ends; 0: it is damaged, or no file for GPUs. What is in the parts is for the
 * compile service to read (compiler/machine_code.py). */
size_t sim_cubin_size(const void *elf, size_t limit);
