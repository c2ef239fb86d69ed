/* Which contexts may reach the memory of which others. */
#include "context.h"
#include <stdlib.h>

/* Of a context that may be gone: those are never freed, and no other one gets its address. */
struct sim_peer {
    struct sim_peer *next;
    const struct sim_context *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Where the peer is, or would be put. Lock held. */
static struct sim_peer **find(struct sim_context *context, const struct sim_context *peer) {
    struct sim_peer **link = &context->peers;
    while (*link && (*link)->context != peer)
        link = &(*link)->next;
    return link;
}

static CUresult enable(struct sim_context *context, const struct sim_context *peer) {
    struct sim_peer *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = peer;
    pthread_mutex_lock(&lock);
    struct sim_peer **link = find(context, peer);
    bool known = *link != NULL;
    if (!known)
        *link = made;
    pthread_mutex_unlock(&lock);
    if (known)
        free(made);
    return known ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

static CUresult disable(struct sim_context *context, const struct sim_context *peer) {
    pthread_mutex_lock(&lock);
    struct sim_peer **link = find(context, peer), *known = *link;
    if (known)
        *link = known->next;
    pthread_mutex_unlock(&lock);
    free(known);
    return known ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

void sim_peers_forget(struct sim_context *context) {
    pthread_mutex_lock(&lock);
    struct sim_peer *peer = context->peers;
    context->peers = NULL;
    pthread_mutex_unlock(&lock);
    while (peer) {
        struct sim_peer *next = peer->next;
        free(peer);
        peer = next;
    }
}

CUresult cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    const struct sim_context *peer = sim_context_of(peer_handle);
    SIM_REQUIRE(flags == 0);
    if (!peer || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device || !sim_config_get()->peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return enable(context, peer);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_handle) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    const struct sim_context *peer = sim_context_of(peer_handle);
    return peer ? disable(context, peer) : CUDA_ERROR_INVALID_CONTEXT;
}
