/* What functions of things that this device does not have look at before they say so: multicast, logical
 * endpoints, cliques, other APIs' memory and semaphores, graphics, checkpoints by the driver. Their bodies
 * are generated from the spec (simdevice_stubs.c). */
#pragma once
#include "sim.h"

CUresult sim_refuse_unless(bool valid);
CUresult sim_refuse_device(CUdevice ordinal);
CUresult sim_refuse_stream(CUstream stream);
