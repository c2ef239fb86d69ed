/* Texture and surface objects: what a program asked for, kept beside the view that kernels see (exec/view.h).
 */
#pragma once
#include "context.h"
#include "view.h"

enum { SIM_TEXTURE_ALIGNMENT = 512 };

/* What kernels see of a resource. INVALID_HANDLE for an array that is none. */
CUresult sim_view_of_resource(const CUDA_RESOURCE_DESC *resource, struct sim_view *view);
/* The same for a part of it, or another format; NULL: all of it. */
CUresult sim_view_narrow(const CUDA_RESOURCE_DESC *resource, const CUDA_RESOURCE_VIEW_DESC *part,
                         struct sim_view *view);
CUresult sim_sampler_of(const CUDA_TEXTURE_DESC *desc, const struct sim_view *view,
                        struct sim_sampler *sampler);
/* Ends what the context's programs left. */
void sim_textures_forget_context(struct sim_context *context);
/* The number below that of a device's first object, in the table of views. */
uint32_t sim_textures_base(const struct sim_device *device);
