/* What cudaEGL.h needs of EGL's header, which machines without graphics lack. */
#pragma once
#include <stdint.h>
typedef int32_t EGLint;
