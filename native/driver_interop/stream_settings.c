#include "driver_interop/stream_settings.h"

#include <stdlib.h>
#include <string.h>

const struct gf_stream_settings gf_stream_settings_initial = {
    .synchronization = CU_SYNC_POLICY_AUTO,
    .domains = {.default_ = 0, .remote = 1},
};

pthread_mutex_t gf_stream_settings_lock = PTHREAD_MUTEX_INITIALIZER;

void gf_stream_settings_forget(struct gf_stream_settings **settings) {
    pthread_mutex_lock(&gf_stream_settings_lock);
    free(*settings);
    *settings = NULL;
    pthread_mutex_unlock(&gf_stream_settings_lock);
}

CUresult gf_stream_settings_get(const struct gf_stream_settings *settings, int priority,
                                CUstreamAttrID attribute, CUstreamAttrValue *value) {
    CUstreamAttrValue found;
    memset(&found, 0, sizeof found);
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        found.accessPolicyWindow = settings->window;
        break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        found.syncPolicy = settings->synchronization;
        break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        found.priority = priority;
        break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        found.memSyncDomainMap = settings->domains;
        break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        found.memSyncDomain = settings->domain;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = found;
    return CUDA_SUCCESS;
}

CUresult gf_stream_settings_set(struct gf_stream_settings *settings, CUstreamAttrID attribute,
                                const CUstreamAttrValue *value) {
    const CUaccessPolicyWindow *window = &value->accessPolicyWindow;
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        if (!(window->hitRatio >= 0 && window->hitRatio <= 1) ||
            (unsigned)window->hitProp > CU_ACCESS_PROPERTY_PERSISTING ||
            (unsigned)window->missProp > CU_ACCESS_PROPERTY_STREAMING) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->window = *window;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        if (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->synchronization = value->syncPolicy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        settings->domains = value->memSyncDomainMap;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        if ((unsigned)value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        settings->domain = value->memSyncDomain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE; /* a stream's priority does not change */
    }
}
