/* Tensor maps: checked here, encoded by the driver of the device that will read them. What was encoded lately
 * is remembered, because programs encode the same maps before every launch. */
#include <pthread.h>

#include "channel.h"
#include "functions.h"
#include "gpuferry/messages.h"

#define DRIVER(name) gf_##name
#define ENTER        (void)0

#include "driver_interop/tensor_map.h"

#define REMEMBERED 64

static struct {
    struct gf_tensor_map map;
    CUtensorMap encoded;
    uint32_t context; /* maps for one device may be no others' */
} remembered[REMEMBERED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult encode(CUtensorMap *to, const struct gf_tensor_map *map);
static CUresult move(CUtensorMap *to, uint64_t address);

#include "driver_interop/tensor_map.c.h"

static unsigned place_of(const struct gf_tensor_map *map) {
    uint64_t words[sizeof *map / 8], hash = 0;
    memcpy(words, map, sizeof words);
    for (unsigned i = 0; i < sizeof *map / 8; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (unsigned)(hash % REMEMBERED);
}

static CUresult encode(CUtensorMap *to, const struct gf_tensor_map *map) {
    unsigned place = place_of(map);
    pthread_mutex_lock(&lock);
    bool known = remembered[place].context == gf_thread.context_id &&
                 memcmp(&remembered[place].map, map, sizeof *map) == 0;
    if (known) {
        memcpy(to, &remembered[place].encoded, sizeof *to);
    }
    pthread_mutex_unlock(&lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    struct gf_req_sessionTensorMap request;
    CUtensorMap encoded;
    memcpy(request.map, map, sizeof request.map);
    struct gf_call call = {.op = GF_OP_sessionTensorMap,
                           .rows = {(char *)&encoded, sizeof encoded, sizeof encoded, 1}};
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(to, &encoded, sizeof *to);
    pthread_mutex_lock(&lock);
    remembered[place].map = *map;
    remembered[place].encoded = encoded;
    remembered[place].context = gf_thread.context_id;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult move(CUtensorMap *to, uint64_t address) {
    struct gf_req_sessionTensorMapMove request = {.address = address};
    CUtensorMap moved;
    memcpy(request.map, to, sizeof request.map);
    struct gf_call call = {.op = GF_OP_sessionTensorMapMove,
                           .rows = {(char *)&moved, sizeof moved, sizeof moved, 1}};
    CUresult result = gf_call_parts(&call, &(struct iovec){&request, sizeof request}, 1);
    if (result == CUDA_SUCCESS) {
        memcpy(to, &moved, sizeof *to);
    }
    return result;
}
