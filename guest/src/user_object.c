#include "user_object.h"

#include <pthread.h>
#include <stdlib.h>

#include "calls.h"
#include "graph.h"
#include "guest.h"
#include "objects.h"
#include "thread.h"

struct gf_retained {
    uint64_t object;
    unsigned count;
    struct gf_retained *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct destruction {
    CUhostFn destroy;
    void *data;
};

static void destroy(struct destruction given) {
    bool before = gf_thread.host_function;
    gf_thread.host_function = true;
    given.destroy(given.data);
    gf_thread.host_function = before;
}

static void *destroy_aside(void *argument) {
    const struct destruction given = *(struct destruction *)argument;
    free(argument);
    destroy(given);
    return NULL;
}

/* The program's destructor may not call CUDA, as functions in streams may not, so nobody waits for it; it
 * runs on a thread of ours, if there is one. */
static void begin_destruction(CUhostFn function, void *data) {
    const struct destruction given = {function, data};
    struct destruction *kept = malloc(sizeof *kept);
    if (kept != NULL) {
        *kept = given;
    }
    if (kept == NULL || !gf_thread_begin(destroy_aside, kept, 0)) {
        free(kept);
        destroy(given);
    }
}

static CUresult retain(uint64_t handle, unsigned count) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    struct gf_user_object *object = gf_user_object_find((CUuserObject)handle);
    if (object != NULL && count <= INT32_MAX - object->references) {
        object->references += count;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult release(uint64_t handle, unsigned count) {
    pthread_mutex_lock(&lock);
    struct gf_user_object *object = gf_user_object_find((CUuserObject)handle);
    if (object == NULL || object->references < count) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    object->references -= count;
    CUhostFn function = object->destroy;
    void *data = object->data;
    struct gf_object *ended = object->references == 0 ? gf_object_end(object, handle) : NULL;
    pthread_mutex_unlock(&lock);
    if (ended != NULL) {
        gf_objects_release(ended);
        begin_destruction(function, data);
    }
    return CUDA_SUCCESS;
}

CUresult gf_user_object_create(CUuserObject *handle, void *data, CUhostFn function, unsigned references) {
    uint64_t made;
    struct gf_user_object *object = gf_user_object_new(&made);
    if (object == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->destroy = function;
    object->data = data;
    object->references = references;
    gf_object_publish(object, made, NULL);
    *handle = (CUuserObject)made;
    return CUDA_SUCCESS;
}

CUresult gf_user_object_retain(uint64_t handle, unsigned count) {
    return retain(handle, count);
}

CUresult gf_user_object_release(uint64_t handle, unsigned count) {
    return release(handle, count);
}

static CUresult note(struct gf_retained **list, uint64_t object, unsigned count) {
    struct gf_retained *one = *list;
    while (one != NULL && one->object != object) {
        one = one->next;
    }
    if (one == NULL) {
        one = calloc(1, sizeof *one);
        if (one == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        one->object = object;
        one->next = *list;
        *list = one;
    }
    one->count += count;
    return CUDA_SUCCESS;
}

CUresult gf_graph_retain(struct gf_model *model, uint64_t object, unsigned count, bool move) {
    CUresult result = move ? CUDA_SUCCESS : retain(object, count);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        result = note(&model->retained, object, count);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

CUresult gf_graph_release(struct gf_model *model, uint64_t object, unsigned count) {
    pthread_mutex_lock(&lock);
    struct gf_retained *one = model->retained;
    while (one != NULL && one->object != object) {
        one = one->next;
    }
    bool held = one != NULL && one->count >= count;
    if (held) {
        one->count -= count;
    }
    pthread_mutex_unlock(&lock);
    return held ? release(object, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult gf_retained_copy(struct gf_retained **copy, const struct gf_retained *list) {
    CUresult result = CUDA_SUCCESS;
    for (; list != NULL && result == CUDA_SUCCESS; list = list->next) {
        if (list->count > 0 && (result = retain(list->object, list->count)) == CUDA_SUCCESS) {
            result = note(copy, list->object, list->count);
        }
    }
    return result;
}

void gf_retained_free(struct gf_retained *list) {
    while (list != NULL) {
        struct gf_retained *next = list->next;
        if (list->count > 0) {
            release(list->object, list->count);
        }
        free(list);
        list = next;
    }
}
