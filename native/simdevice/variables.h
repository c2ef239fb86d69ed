/* Memory of an image's variables. */
#pragma once
#include "device.h"
#include "placement.h"

/* Gives addresses to the variables that have none yet: all of them, or those that a library holds, which are
 * no context's. What is in `addresses` and `place` afterwards is the caller's to give back, in this order,
 * even after an error. */
CUresult sim_variables_place(const struct sim_image *image, enum sim_placed what, struct sim_device *device,
                             struct sim_context *context, uint8_t **addresses, struct sim_place **place);
