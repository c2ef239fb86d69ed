/* Values that the runtime keeps per context. Looked up in front of nearly every runtime call, so reading
 * takes no lock. */
#pragma once
#include "driver_interop/cuda_driver.h"

typedef void gf_storage_destructor(CUcontext context, void *key, void *value);

CUresult gf_context_storage_put(CUcontext context, void *key, void *value, gf_storage_destructor *destructor);
CUresult gf_context_storage_delete(CUcontext context, void *key);
CUresult gf_context_storage_get(void **value, CUcontext context, void *key);
