/* What kinds of launch attributes there are, as cuda.h has it. */
#pragma once
#include <stdbool.h>

#include "driver_interop/cuda_driver.h"

/* Whether a kernel node may have it: cuda.h calls the others valid for streams or launches alone. */
bool gf_attribute_is_of_nodes(CUlaunchAttributeID id);
/* Whether a launch with it records an event, which is `value.programmaticEvent`'s: both kinds begin with that
 * and its flags. */
bool gf_attribute_records(CUlaunchAttributeID id);
/* The edge by which a kernel waits for such an event, if it was recorded in a capture. */
CUgraphEdgeData gf_attribute_edge(const CUlaunchAttribute *attribute);
