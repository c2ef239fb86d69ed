/* What cudaProfilerTypedefs.h and a driver library need of CUDA's header of this name, which the toolkit
 * ships apart from cuda.h. */
#pragma once
#include <cuda.h>

typedef enum CUoutput_mode_enum {
    CU_OUT_KEY_VALUE_PAIR = 0,
    CU_OUT_CSV = 1,
} CUoutput_mode;

CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
