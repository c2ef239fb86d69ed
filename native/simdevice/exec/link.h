/* cuLink*: several PTX texts, fatbins or linked images joined to one image, which sim_image_open accepts. */
#pragma once
#include "cuda.h"
#include "sniff.h"
#include <stddef.h>

struct sim_link;

/* `target` is 80 for sm_80: what the result is for. `most_registers`: of a thread, 0 is no limit. */
CUresult sim_link_create(int target, unsigned most_registers, struct sim_link **out);
/* Copies the input; the names appear in messages. An input of another kind than the caller says is
 * CUDA_ERROR_INVALID_PTX or _INVALID_IMAGE, a name that an earlier input defines as well _INVALID_SOURCE.
 * Then `log` has the reason, and the link is as it was. */
CUresult sim_link_add(struct sim_link *link, enum sim_image_kind kind, const void *data, size_t size,
                      const char *name, char *log, size_t log_size);
/* The image is an ELF file and belongs to the link. Called once. CUDA_ERROR_UNKNOWN, as
 * NVIDIA's driver says, for names that no input defines. */
CUresult sim_link_complete(struct sim_link *link, const void **image, size_t *size, char *log,
                           size_t log_size);
void sim_link_destroy(struct sim_link *link);
