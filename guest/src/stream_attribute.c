/* Attributes of streams: hints, kept here. Those of a legacy stream are its context's. */
#include <stdlib.h>

#include "capture.h"
#include "context.h"
#include "driver_interop/stream_settings.h"
#include "functions.h"
#include "objects.h"
#include "steps.h"
#include "stream.h"

void gf_stream_ended(struct gf_object *object) {
    struct gf_stream *stream = (struct gf_stream *)object;
    gf_capture_forget(stream);
    free(stream->settings);
    stream->settings = NULL;
}

/* Where the settings of a stream are, NULL until they are set; lock held. */
static CUresult settings_of(CUstream handle, struct gf_stream_settings ***settings) {
    struct gf_stream *stream;
    uint64_t wire;
    CUresult result = gf_stream_look_up(handle, &stream, &wire);
    struct gf_context *context = gf_context_current();
    if (result == CUDA_SUCCESS && stream == NULL && context == NULL) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *settings = stream == NULL ? &context->settings : &stream->settings;
    return result;
}

static CUresult make(struct gf_stream_settings **settings) {
    if (*settings == NULL && (*settings = malloc(sizeof **settings)) != NULL) {
        **settings = gf_stream_settings_initial;
    }
    return *settings == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult gf_cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value) {
    struct gf_stream_settings **settings;
    int priority;
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : gf_cuStreamGetPriority(hStream, &priority);
    pthread_mutex_lock(&gf_stream_settings_lock);
    result = result == CUDA_SUCCESS ? settings_of(hStream, &settings) : result;
    if (result == CUDA_SUCCESS) {
        result = gf_stream_settings_get(*settings == NULL ? &gf_stream_settings_initial : *settings, priority,
                                        attr, value);
    }
    pthread_mutex_unlock(&gf_stream_settings_lock);
    return result;
}

CUresult gf_cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param) {
    struct gf_stream_settings **settings;
    pthread_mutex_lock(&gf_stream_settings_lock);
    CUresult result = param == NULL ? CUDA_ERROR_INVALID_VALUE : settings_of(hStream, &settings);
    result = result == CUDA_SUCCESS ? make(settings) : result;
    result = result == CUDA_SUCCESS ? gf_stream_settings_set(*settings, attr, param) : result;
    pthread_mutex_unlock(&gf_stream_settings_lock);
    return result;
}

CUresult gf_cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
    struct gf_stream_settings **to, **from;
    pthread_mutex_lock(&gf_stream_settings_lock);
    CUresult result = settings_of(dstStream, &to);
    result = result == CUDA_SUCCESS ? settings_of(srcStream, &from) : result;
    result = result == CUDA_SUCCESS ? make(to) : result;
    if (result == CUDA_SUCCESS) {
        **to = *from == NULL ? gf_stream_settings_initial : **from;
    }
    pthread_mutex_unlock(&gf_stream_settings_lock);
    return result;
}
