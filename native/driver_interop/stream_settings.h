/* What cuStreamSetAttribute leaves with a stream. Hints all: they change no result. */
#pragma once
#include <pthread.h>

#include "driver_interop/cuda_driver.h"

struct gf_stream_settings {
    CUaccessPolicyWindow window;
    CUsynchronizationPolicy synchronization;
    CUlaunchMemSyncDomainMap domains; /* remote begins as 1 */
    CUlaunchMemSyncDomain domain;
};

extern const struct gf_stream_settings gf_stream_settings_initial;
extern pthread_mutex_t gf_stream_settings_lock; /* of all streams */

/* They are again what they began as. */
void gf_stream_settings_forget(struct gf_stream_settings **settings);

CUresult gf_stream_settings_get(const struct gf_stream_settings *settings, int priority,
                                CUstreamAttrID attribute, CUstreamAttrValue *value);
CUresult gf_stream_settings_set(struct gf_stream_settings *settings, CUstreamAttrID attribute,
                                const CUstreamAttrValue *value);
