#pragma once
#include "guest.h"
#include "objects.h"

/* Makes the primary context's handle (inactive). */
bool gf_context_open(void);
uint64_t gf_context_primary(void);
/* The context that is current and fine, after gf_context_check. */
struct gf_context *gf_context_current(void);
uint64_t gf_context_current_handle(void);
