/* Calls that become nodes. */
#include <stdlib.h>
#include <string.h>

#include "capture_state.h"
#include "functions.h"
#include "launch.h"
#include "objects.h"

/* A launch that need not wait for the end of the kernel before it in its stream waits for the end of all
 * else. */
static void make_programmatic(const struct gf_captured *captured) {
    const struct gf_places *places = &captured->places;
    if (places->count == 1 && places->edges[0].from == captured->last &&
        captured->last->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        places->edges[0].data = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    }
}

/* Only kernels begin before the end of what they wait for. */
static void make_plain(struct gf_places *places) {
    unsigned count = places->count;
    places->count = 0;
    for (unsigned i = 0; i < count; i++) { /* they need no more room than they had */
        gf_places_add(places, places->edges[i].from, NULL);
    }
}

/* A new node behind all places of the stream, which is then the only one. */
static CUresult add_node(struct gf_captured *captured, enum gf_form form, const void *params,
                         struct gf_node **added) {
    struct gf_capture *capture = captured->capture;
    struct gf_places *places = &captured->places;
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    CUgraphNodeParams whole;
    if (form == GF_FORM_MEMCPY || form == GF_FORM_MEMSET || form == GF_FORM_BATCH) {
        whole = gf_form_in(form, params, (CUcontext)captured->stream->object.owner);
        form = GF_FORM_ANY;
        params = &whole;
    }
    CUresult result = gf_node_add(capture->model, form, params, added);
    if (result != CUDA_SUCCESS) {
        return result; /* for what the call was given: no capture ends by that */
    }
    for (unsigned i = 0; i < places->count && result == CUDA_SUCCESS; i++) {
        result = gf_node_depend(*added, places->edges[i].from, &places->edges[i].data);
    }
    result = result == CUDA_SUCCESS ? gf_node_publish(*added, NULL) : result;
    if (result != CUDA_SUCCESS) {
        return gf_capture_invalidate(capture, result);
    }
    places->count = 0;
    captured->last = *added;
    return gf_places_add(places, *added, NULL) ? CUDA_SUCCESS
                                               : gf_capture_invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
}

/* What a node keeps of its launch, and the priority of its stream if the launch has none. */
static CUresult keep_attributes(struct gf_node *node, const struct gf_stream *stream,
                                const CUlaunchConfig *config) {
    if (stream->priority == 0) {
        return gf_params_attributes(node, config->attrs, config->numAttrs);
    }
    CUlaunchAttribute *all = malloc((config->numAttrs + 1) * sizeof *all);
    if (all == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    all[0] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = stream->priority};
    if (config->numAttrs > 0) {
        memcpy(&all[1], config->attrs, config->numAttrs * sizeof *all);
    }
    CUresult result = gf_params_attributes(node, all, config->numAttrs + 1);
    free(all);
    return result;
}

/* `told`: the same parameters, if what the node made is to be put there. */
static bool takes(CUstream handle, enum gf_form form, const void *params, void *told,
                  const CUlaunchConfig *config, CUresult *result) {
    struct gf_stream *stream = gf_capture_stream_of(handle);
    struct gf_node *node = NULL;
    gf_graphs_lock();
    struct gf_captured *captured = stream == NULL ? NULL : stream->captured;
    if (captured != NULL && config != NULL && gf_launch_is_programmatic(config)) {
        make_programmatic(captured);
    }
    if (captured != NULL && form != GF_FORM_KERNEL) {
        make_plain(&captured->places);
    }
    *result = captured != NULL ? add_node(captured, form, params, &node) : gf_capture_implicit(handle, true);
    if (node != NULL && *result == CUDA_SUCCESS && config != NULL) {
        *result = keep_attributes(node, stream, config);
    }
    if (node != NULL && *result == CUDA_SUCCESS && told != NULL) {
        gf_params_tell(node, form, told);
    }
    gf_graphs_unlock();
    return captured != NULL || *result != CUDA_SUCCESS;
}

bool gf_capture_takes(CUstream stream, enum gf_form form, const void *params, CUresult *result) {
    return takes(stream, form, params, NULL, NULL, result);
}

bool gf_capture_takes_telling(CUstream stream, enum gf_form form, void *params, CUresult *result) {
    return takes(stream, form, params, params, NULL, result);
}

bool gf_capture_takes_launch(const CUlaunchConfig *config, CUfunction function, void **kernel_params,
                             void **extra, CUresult *result) {
    CUDA_KERNEL_NODE_PARAMS_v3 params = {.func = function,
                                         .gridDimX = config->gridDimX,
                                         .gridDimY = config->gridDimY,
                                         .gridDimZ = config->gridDimZ,
                                         .blockDimX = config->blockDimX,
                                         .blockDimY = config->blockDimY,
                                         .blockDimZ = config->blockDimZ,
                                         .sharedMemBytes = config->sharedMemBytes,
                                         .kernelParams = kernel_params,
                                         .extra = extra};
    if (gf_kernel_find((CUkernel)function) != NULL) { /* each in its own member */
        params.kern = (CUkernel)function;
        *result = gf_cuKernelGetFunction(&params.func, params.kern);
        if (*result != CUDA_SUCCESS) {
            return true;
        }
    }
    return takes(config->hStream, GF_FORM_KERNEL, &params, NULL, config, result);
}
