/* Kernels of different processes on one device, one process at a time: as on a GPU without MPS. Devices by
 * the machine's ordinal. */
#pragma once

void sim_turn_begin(int device);
void sim_turn_end(int device);
