/* What is answered here alone: settings of core dumps, logs, notifications. */
#include <stdbool.h>
#include <stdio.h>

#include "functions.h"

#define DRIVER(name) gf_##name
#define ENTER        (void)0

#include "driver_interop/deviceless.c.h"

#include "driver_interop/error_log.c.h"
