/* cuda.h as a driver library needs it: every binary interface that was ever exported under its own name (no
 * macro renames a function to a newer one), and exported although the library is compiled with hidden
 * visibility. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaEGL.h>
#include <cudaGL.h>
#include <vdpau/vdpau.h> /* which cudaVDPAU.h does not include itself */

#include <cudaVDPAU.h>
#include "driver_interop/cudaProfiler.h"
#pragma GCC visibility pop
