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
/* Of 1-D arrays, by offsets in bytes. */
CUresult gf_copy_line(const CUDA_MEMCPY3D *line, CUstream stream, bool behind);
CUresult gf_copy_device_to_array(CUarray to, size_t offset, CUdeviceptr from, size_t size, CUstream stream);
CUresult gf_copy_array_to_device(CUdeviceptr to, CUarray from, size_t offset, size_t size, CUstream stream);
CUresult gf_copy_host_to_array(CUarray to, size_t offset, const void *from, size_t size, CUstream stream);
CUresult gf_copy_array_to_host(void *to, CUarray from, size_t offset, size_t size, CUstream stream);
CUresult gf_copy_array_to_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size,
                                CUstream stream);
CUresult gf_array_create_plane(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc);
CUresult gf_texture_create(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *part);
CUresult gf_texture_resource(CUtexObject object, CUDA_RESOURCE_DESC *resource);
CUresult gf_texture_sampler(CUtexObject object, CUDA_TEXTURE_DESC *texture);
CUresult gf_texture_part(CUtexObject object, CUDA_RESOURCE_VIEW_DESC *part);
CUresult gf_surface_create(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource);
CUresult gf_surface_resource(CUsurfObject object, CUDA_RESOURCE_DESC *resource);
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
