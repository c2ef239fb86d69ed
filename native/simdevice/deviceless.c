/* What is answered without the device: settings of core dumps, logs, notifications. */
#include "sim.h"
#include <stdio.h>

#define DRIVER(name) name
#define ENTER        SIM_TRY(sim_enter())

#include "driver_interop/deviceless.c.h"

#include "driver_interop/error_log.c.h"
