/* What several functions of the driver are made of (`calls` in specs/cuda/driver/). `behind`: the copy
 * may still run when the call returns. Out parameters are set only on success. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "driver_interop/cuda_driver.h"
#include "driver_interop/interop.h"
#include "graph.h"
#include "objects.h"

/* Device memory of the window, at once or in the order of a stream. */
CUresult gf_memory_alloc(CUdeviceptr *address, size_t size);
CUresult gf_memory_free(CUdeviceptr address);
/* pool: a handle; 0: the current one of the stream's device. */
CUresult gf_memory_alloc_async(CUdeviceptr *address, size_t size, uint64_t pool, CUstream stream);
CUresult gf_memory_free_async(CUdeviceptr address, CUstream stream);

CUresult gf_copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind);
/* Either side may be host memory: the address says so. */
CUresult gf_copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool behind);
CUresult gf_copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                         size_t size, CUstream stream, bool behind);
CUresult gf_copy_plane(const CUDA_MEMCPY2D *plane, CUstream stream, bool behind);
CUresult gf_copy_volume(const CUDA_MEMCPY3D *volume, CUstream stream, bool behind);
CUresult gf_copy_volume_between(const CUDA_MEMCPY3D_PEER *volume, CUstream stream, bool behind);
/* Of 1-D arrays, by offsets in bytes. */
CUresult gf_copy_line(const CUDA_MEMCPY3D *line, CUstream stream, bool behind);
CUresult gf_copy_device_to_array(CUarray to, size_t offset, CUdeviceptr from, size_t size, CUstream stream);
CUresult gf_copy_array_to_device(CUdeviceptr to, CUarray from, size_t offset, size_t size, CUstream stream);
CUresult gf_copy_host_to_array(CUarray to, size_t offset, const void *from, size_t size, CUstream stream,
                               bool behind);
CUresult gf_copy_array_to_host(void *to, CUarray from, size_t offset, size_t size, CUstream stream,
                               bool behind);
CUresult gf_copy_array_to_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size,
                                CUstream stream);
CUresult gf_array_create_plane(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc);
CUresult gf_reference_of_texture(struct gf_module *owner, uint64_t module, const char *name,
                                 CUtexref *reference);
CUresult gf_reference_of_surface(struct gf_module *owner, uint64_t module, const char *name,
                                 CUsurfref *reference);
CUresult gf_reference_bind_array(struct gf_texture_reference *reference, uint64_t handle, CUarray array);
CUresult gf_reference_bind_mipmap(struct gf_texture_reference *reference, uint64_t handle,
                                  CUmipmappedArray mipmap);
CUresult gf_reference_bind_memory(struct gf_texture_reference *reference, uint64_t handle, size_t *offset,
                                  CUdeviceptr address, size_t bytes);
CUresult gf_reference_bind_rows(struct gf_texture_reference *reference, uint64_t handle,
                                const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr address, size_t pitch);
CUresult gf_reference_border(const struct gf_texture_reference *reference, float colour[4]);
/* How many texels a texture over linear memory may have. */
CUresult gf_texture_line_width(CUarray_format format, unsigned channels, size_t *width);
CUresult gf_texture_create(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *part);
CUresult gf_texture_resource(CUtexObject object, CUDA_RESOURCE_DESC *resource);
CUresult gf_texture_sampler(CUtexObject object, CUDA_TEXTURE_DESC *texture);
CUresult gf_texture_part(CUtexObject object, CUDA_RESOURCE_VIEW_DESC *part);
CUresult gf_surface_create(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource);
CUresult gf_surface_resource(CUsurfObject object, CUDA_RESOURCE_DESC *resource);
/* width: in elements. */
CUresult gf_fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width,
                 size_t rows, CUstream stream, bool behind);

/* Memory that program and device share. */
CUresult gf_managed_alloc(CUdeviceptr *address, size_t size, unsigned flags);

CUresult gf_module_load(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                        void **values);
/* The function or kernel of a name, made at first use; `handle` is a CUfunction or a CUkernel. */
CUresult gf_entry_by_name(struct gf_module *owner, const char *name, void *handle);
CUresult gf_entries(struct gf_module *owner, unsigned count, void *handles);
CUresult gf_variable(struct gf_module *owner, const char *name, CUdeviceptr *address, size_t *size);
CUresult gf_managed_variable(struct gf_module *owner, const char *name, CUdeviceptr *address, size_t *size);
/* The module of a library in the current context. */
CUresult gf_module_of_library(struct gf_module *library, CUmodule *module);

CUresult gf_link_add(struct gf_link *link, CUjitInputType type, const void *data, size_t size,
                     const char *name, unsigned count, CUjit_option *options, void **values);
CUresult gf_link_add_file(CUlinkState state, CUjitInputType type, const char *path, unsigned count,
                          CUjit_option *options, void **values);
CUresult gf_link_complete(struct gf_link *link, void **image, size_t *size);

/* Green contexts. */
CUresult gf_green_id(CUgreenCtx handle, unsigned long long *id);
CUresult gf_green_context(CUcontext *context, CUgreenCtx handle);
CUresult gf_green_stream(CUstream *stream, CUgreenCtx handle, unsigned flags, int priority);
CUresult gf_stream_green(CUstream handle, CUgreenCtx *green);
/* green: NULL if the context's own name is wanted, a green one's too. */
CUresult gf_stream_contexts(CUstream handle, CUcontext *context, CUgreenCtx *green);
CUresult gf_resource_of_green(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type);
CUresult gf_resource_of_stream(CUstream handle, CUdevResource *resource, CUdevResourceType type);
/* An event of all that a context was given, or of which all comes behind it that it will be given. */
CUresult gf_context_event(CUcontext handle, CUevent event, bool wait);
CUresult gf_green_event(CUgreenCtx handle, CUevent event, bool wait);

/* The device of the context to which a stream belongs. */
CUresult gf_stream_device(CUstream stream, CUdevice *device);
/* As gf_owner_usable; the default stream, which is no object, is of the context that is current. */
CUresult gf_stream_usable(const struct gf_stream *object);
/* A function of the program, in the order of a stream. */
CUresult gf_host_function(CUstream stream, CUhostFn function, void *data, unsigned sync_mode);
CUresult gf_host_callback(CUstream standard, CUstream stream, CUstreamCallback callback, void *data,
                          unsigned flags);

CUresult gf_occupancy_clusters(int *result, CUfunction function, const CUlaunchConfig *config,
                               bool largest_size);

/* Graphs: each function takes and gives parameters in its form (graph.h). */
CUresult gf_graph_create(CUgraph *graph);
CUresult gf_graph_clone(struct gf_model *model, CUgraph *clone);
CUresult gf_graph_destroy(struct gf_graph *graph);
CUresult gf_graph_destroy_node(struct gf_graph_node *node);
CUresult gf_graph_add(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *data, size_t count, enum gf_form form, const void *params);
/* Of a copy or a fill, in that context. */
CUresult gf_graph_add_in(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                         size_t count, enum gf_form form, const void *params, CUcontext context);
/* Of one handle or address. */
CUresult gf_graph_add_value(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                            size_t count, enum gf_form form, uint64_t value);
/* The same where the program is told what the node made: the address of an allocation. */
CUresult gf_graph_add_telling(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *data, size_t count, enum gf_form form, void *params);
CUresult gf_graph_add_matching(CUgraphNode *handle, struct gf_model *model, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params);
CUresult gf_graph_connect(struct gf_model *model, const CUgraphNode *from, const CUgraphNode *to,
                          const CUgraphEdgeData *data, size_t count);
CUresult gf_graph_disconnect(struct gf_model *model, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t count);
CUresult gf_graph_nodes(struct gf_model *model, CUgraphNode *nodes, size_t *count, bool roots);
CUresult gf_graph_edges(struct gf_model *model, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                        size_t *count);
CUresult gf_node_get(const struct gf_node *node, enum gf_form form, void *params);
CUresult gf_node_set(struct gf_node *node, enum gf_form form, const void *params);
CUresult gf_node_set_matching(struct gf_node *node, const CUgraphNodeParams *params);
CUresult gf_node_set_value(struct gf_node *node, enum gf_form form, uint64_t value);
CUresult gf_node_in_clone(struct gf_model *clone, uint64_t original, CUgraphNode *found);
CUresult gf_node_dependencies(const struct gf_node *node, CUgraphNode *nodes, CUgraphEdgeData *data,
                              size_t *count);
CUresult gf_node_dependents(const struct gf_node *node, CUgraphNode *nodes, CUgraphEdgeData *data,
                            size_t *count);
struct gf_memory_pool;
/* A pool as a descriptor for other processes, and back; an allocation in it as 64 bytes, and back. */
CUresult gf_pool_export(void *descriptor, const struct gf_memory_pool *pool, CUmemAllocationHandleType type);
CUresult gf_pool_import(CUmemoryPool *pool, const void *descriptor, CUmemAllocationHandleType type);
CUresult gf_pool_export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address);
CUresult gf_pool_import_pointer(CUdeviceptr *address, const struct gf_memory_pool *pool,
                                const CUmemPoolPtrExportData *data);
/* A value that conditional nodes of the graph decide by, in that context. */
CUresult gf_condition_create(struct gf_model *model, uint64_t context, unsigned initial, unsigned flags,
                             CUgraphConditionalHandle *value);
CUresult gf_graph_instantiate(CUgraphExec *handle, struct gf_model *model, uint64_t flags);
CUresult gf_graph_instantiate_with(CUgraphExec *handle, struct gf_model *model,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CUresult gf_graph_launch(struct gf_exec *exec, CUstream stream);
CUresult gf_exec_set(struct gf_exec *exec, const struct gf_node *node, enum gf_form form, const void *params);
/* The same of a copy or a fill, in that context; NULL: the node's own. */
CUresult gf_exec_set_in(struct gf_exec *exec, const struct gf_node *node, enum gf_form form,
                        const void *params, CUcontext context);
CUresult gf_exec_set_value(struct gf_exec *exec, const struct gf_node *node, enum gf_form form,
                           uint64_t value);
CUresult gf_exec_enable(struct gf_exec *exec, const struct gf_node *node, bool enabled);
CUresult gf_exec_enabled(struct gf_exec *exec, const struct gf_node *node, unsigned *enabled);
CUresult gf_exec_update(struct gf_exec *exec, struct gf_model *model, CUgraphExecUpdateResultInfo *info);
CUresult gf_exec_update_old(struct gf_exec *exec, struct gf_model *model, CUgraphNode *node,
                            CUgraphExecUpdateResult *result);

CUresult gf_node_attribute_get(const struct gf_node *node, CUlaunchAttributeID id,
                               CUlaunchAttributeValue *value);
CUresult gf_node_attribute_set(struct gf_node *node, CUlaunchAttributeID id,
                               const CUlaunchAttributeValue *value);
CUresult gf_node_attributes_copy(struct gf_node *to, const struct gf_node *from);
CUresult gf_graph_dot(const struct gf_model *model, const char *path, unsigned flags);
/* A number that no other node of the process has. */
CUresult gf_node_tools_id(const struct gf_node *node, unsigned long long *id);
CUresult gf_graph_memory_trim(CUdevice device);
CUresult gf_graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, cuuint64_t *value);
CUresult gf_graph_memory_restart(CUdevice device, CUgraphMem_attribute attribute, const cuuint64_t *zero);

CUresult gf_user_object_create(CUuserObject *object, void *data, CUhostFn destroy, unsigned references);
CUresult gf_user_object_retain(uint64_t object, unsigned count);
CUresult gf_user_object_release(uint64_t object, unsigned count);
CUresult gf_graph_retain(struct gf_model *model, uint64_t object, unsigned count, bool move);
CUresult gf_graph_release(struct gf_model *model, uint64_t object, unsigned count);

CUresult gf_capture_begin(CUstream stream, CUstreamCaptureMode mode, struct gf_model *model,
                          const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
CUresult gf_capture_end(CUstream stream, CUgraph *graph);
CUresult gf_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                         const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count);
CUresult gf_capture_update(CUstream stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                           size_t count, unsigned flags);
