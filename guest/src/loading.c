#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "gpuferry/messages.h"
#include "hooks.h"
#include "known_images.h"
#include "proof.h"
#include "session.h"
#include "stats.h"
#include "wire/sha256.h"

/* A load that nobody waits for yet. What it takes to ask again is kept: a server that let go of the image
 * says so, and the program's own memory may be gone by then. */
struct gf_loading {
    struct gf_call call;
    struct gf_rep_sessionLoadImage reply;
    struct gf_req_sessionLoadImage request;
    _Atomic bool arrived;
    uint32_t context_id;
    void *image;
};

static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned unsettled; /* spares programs that have none a walk */

/* Note [Loads and host calls]
 * NVIDIA's driver may load an image only when the context has nothing to do, and take no other call until
 * then. A stream of it that stands still until this process has done something (host_call.h) would never go
 * on: that it is done is a call too, for the server. So no image is sent while one may be waiting, and
 * nothing that may wait is enqueued until the image is there; with NVIDIA's driver one call would wait for
 * the other likewise. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static _Atomic unsigned under_way, unanswered; /* being sent, or waited for; sent, and left to who needs it */

static void begin_load(void) {
    atomic_fetch_add(&under_way, 1); /* whoever comes from here on waits, or there might always be one */
    gf_hook(GF_BEFORE_LOAD);
}

static void end_load(void) {
    pthread_mutex_lock(&lock);
    atomic_fetch_sub(&under_way, 1);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

bool gf_loads_under_way(void) {
    return (atomic_load(&under_way) > 0 || atomic_load(&unanswered) > 0) && !gf_channel_lost();
}

void gf_loads_await(void) {
    gf_loads_settle();
    pthread_mutex_lock(&lock);
    while (atomic_load(&under_way) > 0) {
        pthread_cond_wait(&ended, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void answer_log(const struct gf_jit_log *log, const char *text, size_t size, uint64_t started) {
    if (size > 0) {
        gf_info("the image did not load: %.*s", (int)size, text);
    }
    gf_jit_answer(log, text, size, (float)((double)(gf_now() - started) / 1e6));
}

/* What the server's answer says of a module that it has loaded; takes the payload over if all goes well. */
static bool describe(struct gf_module *module, char *payload, size_t table_size, uint32_t kernel_count) {
    module->table =
        gf_kernel_table_parse(payload, table_size, kernel_count, (uint32_t)gf_session.device_count);
    module->made = module->table == NULL ? NULL : calloc(kernel_count + 1u, sizeof *module->made);
    if (module->table != NULL && module->made == NULL) {
        module->table->storage = NULL;
        gf_kernel_table_free(module->table);
        module->table = NULL;
    }
    return module->made != NULL;
}

static CUresult unload(uint64_t handle) {
    if (gf_handle_kind(handle) == GF_HANDLE_LIBRARY) {
        struct gf_req_cuLibraryUnload request = {.library = handle};
        return gf_send_struct(GF_OP_cuLibraryUnload, &request);
    }
    struct gf_req_cuModuleUnload request = {.hmod = handle};
    return gf_send_struct(GF_OP_cuModuleUnload, &request);
}

/* Takes an answer, and its payload. */
static CUresult take(struct gf_call *call, struct gf_rep_sessionLoadImage *reply, CUresult result,
                     uint64_t handle, const struct gf_jit_log *log, uint64_t started,
                     struct gf_module *module) {
    size_t table_size = reply->table_size;
    if (reply->table_size > call->payload_size || reply->log_size > call->payload_size - reply->table_size) {
        table_size = reply->log_size = 0;
    }
    const char *text = call->payload == NULL ? "" : (char *)call->payload + table_size;
    answer_log(log, text, reply->log_size, started);
    if (result == CUDA_SUCCESS && !describe(module, call->payload, table_size, reply->kernel_count)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        /* The server has it all the same, if the answer told of an earlier call's failure. */
        if (call->done && call->status == CUDA_SUCCESS && reply->known != 0) {
            unload(handle);
        }
        free(call->payload);
    }
    return result;
}

static CUresult load(const struct gf_req_sessionLoadImage *request, const void *image,
                     const struct gf_jit_log *log, struct gf_module *module) {
    struct gf_rep_sessionLoadImage reply = {0};
    struct gf_call call = {.op = GF_OP_sessionLoadImage, .reply = &reply, .reply_size = sizeof reply};
    struct iovec part = {(void *)request, sizeof *request};
    uint64_t started = gf_now();
    begin_load();
    CUresult result = gf_call_with_image(&call, &part, 1, request->hash, image, request->size);
    end_load();
    return take(&call, &reply, result, request->handle, log, started, module);
}

static void arrived(struct gf_call *call) {
    struct gf_loading *loading = (struct gf_loading *)call;
    call->done = true;
    atomic_fetch_sub(&unanswered, 1);
    atomic_store_explicit(&loading->arrived, true, memory_order_release);
}

static void free_loading(struct gf_loading *loading) {
    free(loading->image);
    free(loading);
}

/* Sends all that loads an image which is known to load, and leaves the answer to who needs it. */
static CUresult load_unwaited(const struct gf_req_sessionLoadImage *request, struct gf_image *image,
                              struct gf_module *module) {
    struct gf_loading *loading = calloc(1, sizeof *loading);
    void *copy = image->made != NULL ? image->made : malloc(image->size);
    if (loading == NULL || copy == NULL) {
        free(loading);
        free(copy == image->made ? NULL : copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (copy == image->made) {
        image->made = NULL;
    } else {
        memcpy(copy, image->data, image->size);
    }
    loading->image = copy;
    loading->request = *request;
    loading->context_id = gf_thread.context_id;
    loading->call = (struct gf_call){.op = GF_OP_sessionLoadImage,
                                     .reply = &loading->reply,
                                     .reply_size = sizeof loading->reply,
                                     .completed = arrived};
    begin_load();
    atomic_fetch_add(&unanswered, 1);
    CUresult result = gf_image_lend(request->hash, copy, image->size);
    if (result == CUDA_SUCCESS) {
        result = gf_call_start(&loading->call, &(struct iovec){&loading->request, sizeof *request}, 1);
    }
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&unsettled, 1);
    } else {
        atomic_fetch_sub(&unanswered, 1);
    }
    end_load();
    if (result != CUDA_SUCCESS) { /* the server is lost */
        free_loading(loading);
        return result;
    }
    atomic_store(&module->loading, loading);
    return CUDA_SUCCESS;
}

/* Under a handle that is not published yet. */
static CUresult start(struct gf_image *image, uint64_t handle, const struct gf_jit_log *log,
                      struct gf_module *module) {
    struct gf_req_sessionLoadImage request = {.handle = handle, .size = image->size};
    uint64_t started = gf_now();
    gf_sha256(image->data, image->size, request.hash);
    if (gf_proof_have(request.hash, gf_device_here())) {
        CUresult result = load_unwaited(&request, image, module);
        answer_log(log, "", 0, started);
        return result;
    }
    CUresult result = load(&request, image->data, log, module);
    if (result == CUDA_SUCCESS) {
        gf_proof_add(request.hash, gf_device_here());
    }
    return result;
}

/* Once: who reads the code alone suspects the driver. Programs may ask for many images that do not fit. */
static CUresult say_unfit(CUresult result, const struct gf_target *target) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && !atomic_flag_test_and_set(&said)) {
        bool text_alone = (target->kinds & GF_IMAGE_SASS) == 0;
        gf_error(
            "an image that the program loads has no code for this device, which is sm_%u and takes %s: build "
            "it with -gencode arch=compute_%u,code=compute_%u, or ask its library for PTX",
            target->capability, text_alone ? "PTX alone, no machine code (SASS)" : "PTX and machine code",
            target->capability, target->capability);
    }
    return result;
}

CUresult gf_image_load(enum gf_handle_kind kind, const void *image, struct gf_jit_log *log, uint64_t *out) {
    const int32_t *attributes = gf_device_here()->attributes;
    struct gf_target target = {
        .capability = (uint32_t)(attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                                 attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]),
        .kinds = gf_session.image_kinds,
    };
    struct gf_image picked;
    if (image == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gf_reach(image, UINT64_MAX, false); /* the kernel is asked whether it can be read */
    CUresult result = gf_image_pick(image, &target, &picked);
    if (result != CUDA_SUCCESS) {
        return say_unfit(result, &target);
    }
    uint64_t handle;
    bool is_module = kind == GF_HANDLE_MODULE;
    struct gf_module *module = is_module ? gf_module_new(&handle) : gf_library_new(&handle);
    result = module == NULL ? CUDA_ERROR_OUT_OF_MEMORY : start(&picked, handle, log, module);
    free(picked.made);
    if (!is_module && (result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)) {
        module->refused = result;
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        if (module != NULL) {
            gf_object_discard(module);
        }
        return result;
    }
    gf_object_publish(module, handle, is_module ? gf_context_current() : NULL);
    *out = handle;
    return CUDA_SUCCESS;
}

/* The answer to a load. Asked again, in the context of the load, where the server had let go of the image, or
 * where memory was at an end when it was last asked for. */
static CUresult finish(struct gf_loading *loading, struct gf_module *module) {
    const struct gf_jit_log none = {0};
    CUresult result = loading->call.status;
    if (result == CUDA_SUCCESS && loading->reply.known == 0) {
        uint32_t before = gf_thread.context_id;
        free(loading->call.payload);
        gf_thread.context_id = loading->context_id;
        result = load(&loading->request, loading->image, &none, module);
        gf_thread.context_id = before;
    } else {
        result =
            take(&loading->call, &loading->reply, result, loading->request.handle, &none, gf_now(), module);
    }
    loading->call.payload = NULL;
    return result;
}

/* With the lock held: whoever comes second finds it settled, or ended. */
static CUresult settle(struct gf_module *module, uint64_t handle, struct gf_object **ended) {
    struct gf_loading *loading = atomic_load(&module->loading);
    if (atomic_load(&module->object.handle) != handle) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (loading == NULL) {
        return CUDA_SUCCESS;
    }
    if (!gf_channel_wait_flag(&loading->arrived)) {
        return gf_session_error();
    }
    CUresult result = finish(loading, module);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* the server does not have it any more, if it had */
        loading->call.status = CUDA_SUCCESS;
        loading->reply.known = 0;
        return result;
    }
    atomic_fetch_sub(&unsettled, 1);
    atomic_store_explicit(&module->loading, NULL, memory_order_release);
    free_loading(loading);
    *ended = result == CUDA_SUCCESS ? NULL : gf_object_end(module, handle);
    return result;
}

static CUresult settle_one(struct gf_module *module, uint64_t handle) {
    struct gf_object *ended = NULL;
    if (module->refused != CUDA_SUCCESS) {
        return module->refused;
    }
    if (atomic_load_explicit(&module->loading, memory_order_acquire) == NULL) {
        return CUDA_SUCCESS;
    }
    gf_thread.locked++;
    pthread_mutex_lock(&settling);
    CUresult result = settle(module, handle, &ended);
    pthread_mutex_unlock(&settling);
    gf_thread.locked--;
    gf_objects_release(ended);
    return result;
}

CUresult gf_module_settle(struct gf_module *module, uint64_t handle) {
    return settle_one(module, handle);
}

CUresult gf_library_settle(struct gf_module *library, uint64_t handle) {
    return settle_one(library, handle);
}

static void settle_all(struct gf_table *table) {
    for (uint32_t slot = 0; slot < atomic_load(&table->slots); slot++) {
        struct gf_module *module = gf_table_at(table, slot);
        uint64_t handle = module == NULL ? 0 : atomic_load(&module->object.handle);
        if (handle != 0) {
            settle_one(module, handle); /* what failed has ended, and is told to nobody */
        }
    }
}

void gf_loads_settle(void) {
    if (atomic_load(&unsettled) > 0) {
        settle_all(&gf_tables[GF_HANDLE_MODULE]);
        settle_all(&gf_tables[GF_HANDLE_LIBRARY]);
    }
}
