/* Memory of its own pages, zero at first, with an inaccessible page on either side. */
#pragma once
#include <stddef.h>

void *sim_guarded_new(size_t size); /* NULL when there is none */
void sim_guarded_free(void *memory, size_t size);
