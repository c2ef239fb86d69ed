/* What cudaEGL.h needs of the header of EGL's extensions, which machines without graphics lack. */
#pragma once
#include "egl.h"
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
