/* What several functions of the driver are made of (`calls` in specs/cuda/driver.yaml). `behind`: the copy
 * may still run when the call returns. Out parameters are set only on success. */
#pragma once
#include <stddef.h>

#include "driver_interop/cuda_driver.h"
#include "driver_interop/interop.h"
#include "objects.h"

/* Device memory of the window, at once or in the order of a stream. */
CUresult gf_memory_alloc(CUdeviceptr *address, size_t size);
CUresult gf_memory_free(CUdeviceptr address);
CUresult gf_memory_alloc_async(CUdeviceptr *address, size_t size, uint64_t pool, CUstream stream);
CUresult gf_memory_free_async(CUdeviceptr address, CUstream stream);

CUresult gf_copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
/* Either side may be host memory: the address says so. */
CUresult gf_copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                         size_t size, CUstream stream);
CUresult gf_copy_plane(const CUDA_MEMCPY2D *plane, CUstream stream, bool behind);
CUresult gf_copy_volume(const CUDA_MEMCPY3D *volume, CUstream stream, bool behind);
CUresult gf_copy_volume_between(const CUDA_MEMCPY3D_PEER *volume, CUstream stream, bool behind);
/* width: in elements. */
CUresult gf_fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                 size_t rows, CUstream stream);

/* Memory that program and device share. */
CUresult gf_managed_alloc(CUdeviceptr *address, size_t size, unsigned flags);

CUresult gf_module_load(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                        void **values);
/* The function or kernel of a name, made at first use; `handle` is a CUfunction or a CUkernel. */
CUresult gf_entry_by_name(struct gf_module *owner, const char *name, void *handle);
CUresult gf_entries(struct gf_module *owner, unsigned count, void *handles);
CUresult gf_variable(struct gf_module *owner, const char *name, CUdeviceptr *address, size_t *size);
/* The module of a library in the current context. */
CUresult gf_module_of_library(struct gf_module *library, CUmodule *module);

CUresult gf_link_add(struct gf_link *link, CUjitInputType type, const void *data, size_t size,
                     const char *name, unsigned count, CUjit_option *options, void **values);
CUresult gf_link_add_file(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                          CUjit_option *options, void **values);
CUresult gf_link_complete(struct gf_link *link, void **image, size_t *size);

/* A function of the program, in the order of a stream. */
CUresult gf_host_function(CUstream stream, CUhostFn function, void *data, unsigned sync_mode);
CUresult gf_host_callback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags);

CUresult gf_occupancy_clusters(int *result, CUfunction function, const CUlaunchConfig *config,
                               bool largest_size);
