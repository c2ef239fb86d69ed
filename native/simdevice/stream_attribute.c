/* Attributes of streams: hints, which change nothing here. */
#include "driver_interop/stream_settings.h"
#include "stream.h"
#include <stdlib.h>

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    struct sim_stream *stream;
    SIM_REQUIRE(value);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    pthread_mutex_lock(&gf_stream_settings_lock);
    CUresult result =
        gf_stream_settings_get(stream->settings ? stream->settings : &gf_stream_settings_initial,
                               stream->priority, attribute, value);
    pthread_mutex_unlock(&gf_stream_settings_lock);
    sim_release(stream);
    return result;
}

/* Lock held. */
static CUresult make(struct sim_stream *stream) {
    if (!stream->settings && (stream->settings = malloc(sizeof *stream->settings)))
        *stream->settings = gf_stream_settings_initial;
    return stream->settings ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
    struct sim_stream *stream;
    SIM_REQUIRE(value);
    SIM_TRY(sim_stream_acquire(handle, &stream));
    pthread_mutex_lock(&gf_stream_settings_lock);
    CUresult result = make(stream);
    if (result == CUDA_SUCCESS)
        result = gf_stream_settings_set(stream->settings, attribute, value);
    pthread_mutex_unlock(&gf_stream_settings_lock);
    sim_release(stream);
    return result;
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
    struct sim_stream *to, *from;
    SIM_TRY(sim_stream_acquire(to_handle, &to));
    CUresult result = sim_stream_acquire(from_handle, &from);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&gf_stream_settings_lock);
        result = make(to);
        if (result == CUDA_SUCCESS)
            *to->settings = from->settings ? *from->settings : gf_stream_settings_initial;
        pthread_mutex_unlock(&gf_stream_settings_lock);
        sim_release(from);
    }
    sim_release(to);
    return result;
}
