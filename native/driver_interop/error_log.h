/* What a driver says of calls that failed: cuLogs* and CUDA_LOG_FILE (error_log.c.h). */
#pragma once
#include "driver_interop/cuda_driver.h"

void gf_error_log_add(const char *function, CUresult result);
