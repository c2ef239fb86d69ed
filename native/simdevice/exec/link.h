/* cuLink*: several PTX texts, fatbins or linked images joined to one image, which sim_image_open accepts. */
#pragma once
#include "cuda.h"
#include <stddef.h>

struct sim_link;

CUresult sim_link_create(struct sim_link **out);
/* Copies the input. `size` 0: derive it. */
CUresult sim_link_add(struct sim_link *link, const void *data, size_t size, char *log, size_t log_size);
/* The image belongs to the link. What is wrong with the inputs' text shows when the image is opened; `cc` as
 * there: it is opened here once, to say so now. */
CUresult sim_link_complete(struct sim_link *link, int cc, const void **image, size_t *size, char *log,
                           size_t log_size);
void sim_link_destroy(struct sim_link *link);
