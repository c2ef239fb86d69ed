#pragma once
#include "guest.h"

CUresult gf_wire_event(CUevent event, uint64_t *wire);
void gf_event_end_context(uint64_t context);
