#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "context.h"
#include "functions.h"
#include "gpuferry/messages.h"
#include "stats.h"
#include "wire/sha256.h"

struct gf_table gf_modules = GF_TABLE(GF_HANDLE_MODULE, struct gf_module);
struct gf_table gf_libraries = GF_TABLE(GF_HANDLE_LIBRARY, struct gf_module);
static struct gf_table functions = GF_TABLE(GF_HANDLE_FUNCTION, struct gf_callable);
static struct gf_table kernels = GF_TABLE(GF_HANDLE_KERNEL, struct gf_callable);

#define LOAD_ATTEMPTS 16

/* Guards `made`, `globals` and the list of images that the server is known to hold. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned global_count;

struct gf_callable *gf_callable_find(uint64_t handle) {
    struct gf_callable *found = gf_table_find(&functions, handle);
    return found != NULL ? found : gf_table_find(&kernels, handle);
}

struct gf_callable *gf_kernel_find(CUkernel kernel) {
    return gf_table_find(&kernels, (uint64_t)kernel);
}

struct gf_module *gf_module_find(CUmodule module) {
    return gf_table_find(&gf_modules, (uint64_t)module);
}

struct gf_module *gf_library_find(CUlibrary library) {
    return gf_table_find(&gf_libraries, (uint64_t)library);
}

CUresult gf_wire_kernel(CUkernel kernel, uint64_t *wire) {
    *wire = (uint64_t)kernel;
    return gf_kernel_find(kernel) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult gf_wire_function_or_kernel(CUfunction function, uint64_t *wire) {
    *wire = (uint64_t)function;
    return gf_callable_find((uint64_t)function) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static bool server_has(const uint8_t hash[GF_HASH_SIZE]) {
    for (uint32_t i = 0; i < gf_session.image_hash_count; i++) {
        if (memcmp(gf_session.image_hashes[i], hash, GF_HASH_SIZE) == 0) {
            return true;
        }
    }
    return false;
}

static void remember(const uint8_t hash[GF_HASH_SIZE]) {
    uint8_t (*grown)[GF_HASH_SIZE] =
        realloc(gf_session.image_hashes, (gf_session.image_hash_count + 1u) * sizeof *grown);
    if (grown != NULL) {
        memcpy(grown[gf_session.image_hash_count++], hash, GF_HASH_SIZE);
        gf_session.image_hashes = grown;
    }
}

static CUresult send_image(const uint8_t hash[GF_HASH_SIZE], const struct gf_image *image) {
    struct gf_req_sessionImageData request = {.size = image->size};
    memcpy(request.hash, hash, sizeof request.hash);
    CUresult result = CUDA_SUCCESS;
    while (request.offset < image->size && result == CUDA_SUCCESS) {
        uint64_t left = image->size - request.offset, part = left < GF_CHUNK ? left : GF_CHUNK;
        struct gf_rows rows = {(char *)image->data + request.offset, part, part, 1};
        result = gf_send_rows(GF_OP_sessionImageData, &request, sizeof request, &rows);
        request.offset += part;
    }
    return result;
}

static void answer_log(const struct gf_jit_log *log, const char *text, size_t size, uint64_t started) {
    if (size > 0) {
        gf_info("the image did not load: %.*s", (int)size, text);
    }
    gf_jit_answer(log, text, size, (float)((double)(gf_now() - started) / 1e6));
}

/* Loads an image under a handle that is not published yet. A server that does not hold the image is asked
 * again: it may have forgotten it, or the session may have moved, more than once, before the image belonged
 * to anything. */
static CUresult load(const struct gf_image *image, uint64_t handle, const struct gf_jit_log *log,
                     struct gf_kernel_table **table) {
    struct gf_req_sessionLoadImage request = {.handle = handle, .size = image->size};
    struct gf_rep_sessionLoadImage reply = {0};
    uint64_t started = gf_now();
    gf_sha256(image->data, image->size, request.hash);
    pthread_mutex_lock(&lock);
    bool known = server_has(request.hash);
    pthread_mutex_unlock(&lock);
    for (int attempt = 0; attempt < LOAD_ATTEMPTS; attempt++) {
        CUresult result = known ? CUDA_SUCCESS : send_image(request.hash, image);
        struct gf_call call = {.op = GF_OP_sessionLoadImage, .reply = &reply, .reply_size = sizeof reply};
        if (result == CUDA_SUCCESS) {
            result = gf_call_start(&call, &(struct iovec){&request, sizeof request}, 1);
            CUresult waited = gf_call_wait(&call);
            result = result != CUDA_SUCCESS ? result : waited;
        }
        if (result == CUDA_SUCCESS && reply.known == 0) {
            free(call.payload);
            known = false;
            continue;
        }
        size_t table_size = reply.table_size;
        if (reply.table_size > call.payload_size || reply.log_size > call.payload_size - reply.table_size) {
            table_size = reply.log_size = 0;
        }
        const char *text = call.payload == NULL ? "" : (char *)call.payload + table_size;
        answer_log(log, text, reply.log_size, started);
        if (result == CUDA_SUCCESS) {
            *table = gf_kernel_table_parse(call.payload, table_size, reply.kernel_count);
            result = *table == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        }
        if (result != CUDA_SUCCESS) {
            free(call.payload);
            return result;
        }
        pthread_mutex_lock(&lock);
        if (!server_has(request.hash)) {
            remember(request.hash);
        }
        pthread_mutex_unlock(&lock);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult gf_module_load_into(struct gf_table *objects, const void *image, struct gf_jit_log *log,
                             uint64_t *out) {
    const int32_t *attributes = gf_session.device.attributes;
    struct gf_target target = {
        .capability = (uint32_t)(attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                                 attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]),
        .kinds = gf_session.image_kinds,
    };
    struct gf_image picked;
    if (image == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_image_pick(image, &target, &picked);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle;
    struct gf_module *module = gf_table_take(objects, &handle);
    result = module == NULL ? CUDA_ERROR_OUT_OF_MEMORY : load(&picked, handle, log, &module->table);
    if (result == CUDA_SUCCESS) {
        module->made = calloc(module->table->count + 1u, sizeof *module->made);
        result = module->made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    free(picked.data);
    if (result != CUDA_SUCCESS) {
        if (module != NULL) {
            gf_table_release(objects, module);
        }
        return result;
    }
    module->object.owner = objects == &gf_modules ? gf_context_current_handle() : 0;
    gf_table_publish(module, handle);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult gf_module_callable(struct gf_module *owner, uint64_t owner_handle, uint32_t index, uint64_t *out) {
    struct gf_table *objects = gf_handle_kind(owner_handle) == GF_HANDLE_LIBRARY ? &kernels : &functions;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    uint64_t handle = owner->made[index];
    if (handle == 0) {
        struct gf_callable *callable = gf_table_take(objects, &handle);
        if (callable == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            callable->object.owner = owner_handle;
            callable->index = index;
            callable->info = &owner->table->kernels[index];
            for (int i = 0; i < GF_FUNCTION_ATTRIBUTE_COUNT; i++) {
                callable->attributes[i] = callable->info->attributes[i];
            }
            struct gf_req_sessionGetFunction request = {
                .function = handle, .owner = owner_handle, .index = index};
            result = gf_send_struct(GF_OP_sessionGetFunction, &request);
            gf_table_publish(callable, handle);
            owner->made[index] = handle;
        }
    }
    pthread_mutex_unlock(&lock);
    *out = handle;
    return result;
}

static struct gf_global *known_global(struct gf_module *owner, uint64_t context, const char *name) {
    struct gf_global *global = owner->globals;
    while (global != NULL && (global->context != context || strcmp(global->name, name) != 0)) {
        global = global->next;
    }
    return global;
}

CUresult gf_module_global(struct gf_module *owner, uint64_t owner_handle, const char *name,
                          CUdeviceptr *address, size_t *size) {
    if (name == NULL || (address == NULL && size == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t context = gf_handle_kind(owner_handle) == GF_HANDLE_LIBRARY ? gf_context_current_handle() : 0;
    pthread_mutex_lock(&lock);
    struct gf_global *global = known_global(owner, context, name);
    pthread_mutex_unlock(&lock);
    if (global == NULL) {
        struct gf_req_sessionGetGlobal request = {.owner = owner_handle};
        struct gf_rep_sessionGetGlobal reply;
        struct gf_call call = {.op = GF_OP_sessionGetGlobal, .reply = &reply, .reply_size = sizeof reply};
        struct iovec parts[] = {{&request, sizeof request}, {(char *)name, strlen(name)}};
        if (parts[1].iov_len > UINT16_MAX) {
            return CUDA_ERROR_NOT_FOUND;
        }
        CUresult result = gf_call_start(&call, parts, 2);
        CUresult waited = gf_call_wait(&call);
        free(call.payload);
        result = result != CUDA_SUCCESS ? result : waited;
        global = result == CUDA_SUCCESS ? calloc(1, sizeof *global) : NULL;
        char *copy = global != NULL ? strdup(name) : NULL;
        if (copy == NULL) {
            free(global);
            return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
        }
        *global = (struct gf_global){copy, context, reply.address, reply.size, NULL};
        pthread_mutex_lock(&lock);
        global->next = owner->globals;
        owner->globals = global;
        atomic_fetch_add(&global_count, 1);
        pthread_mutex_unlock(&lock);
    }
    if (address != NULL) {
        *address = global->address;
    }
    if (size != NULL) {
        *size = global->size;
    }
    return CUDA_SUCCESS;
}

static bool find_in(struct gf_table *objects, uint64_t address, uint64_t *base, uint64_t *size) {
    for (uint32_t slot = 0; slot < objects->slots; slot++) {
        struct gf_module *module = gf_table_at(objects, slot);
        for (struct gf_global *g = module != NULL ? module->globals : NULL; g != NULL; g = g->next) {
            if (address - g->address < g->size) {
                *base = g->address;
                *size = g->size;
                return true;
            }
        }
    }
    return false;
}

bool gf_global_find(uint64_t address, uint64_t *base, uint64_t *size) {
    if (atomic_load_explicit(&global_count, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&lock);
    bool found = find_in(&gf_libraries, address, base, size) || find_in(&gf_modules, address, base, size);
    pthread_mutex_unlock(&lock);
    return found;
}

void gf_module_end(struct gf_table *objects, struct gf_module *module, uint64_t handle) {
    gf_table_end_owned(&functions, handle);
    gf_table_end_owned(&kernels, handle);
    pthread_mutex_lock(&lock);
    while (module->globals != NULL) {
        struct gf_global *global = module->globals;
        module->globals = global->next;
        free(global->name);
        free(global);
        atomic_fetch_sub(&global_count, 1);
    }
    if (!module->borrowed) {
        gf_kernel_table_free(module->table);
    }
    free((void *)module->made);
    module->table = NULL;
    module->made = NULL;
    pthread_mutex_unlock(&lock);
    gf_table_release(objects, module);
}

void gf_module_end_context(uint64_t context) {
    for (uint32_t slot = 0; slot < gf_modules.slots; slot++) {
        struct gf_module *module = gf_table_at(&gf_modules, slot);
        uint64_t handle = module == NULL ? 0 : atomic_load(&module->object.handle);
        if (handle != 0 && module->object.owner == context && gf_table_end(module)) {
            gf_module_end(&gf_modules, module, handle);
        }
    }
}

static CUresult load_module(CUmodule *module, const void *image, struct gf_jit_log *log) {
    uint64_t handle;
    if (module == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = gf_module_load_into(&gf_modules, image, log, &handle);
    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)handle;
    }
    return result;
}

CUresult gf_cuModuleLoad(CUmodule *module, const char *fname) {
    void *data;
    size_t size;
    CUresult result = fname == NULL ? CUDA_ERROR_INVALID_VALUE : gf_file_read(fname, &data, &size);
    if (result == CUDA_SUCCESS) {
        result = gf_cuModuleLoadData(module, data);
        free(data);
    }
    return result;
}

CUresult gf_cuModuleLoadData(CUmodule *module, const void *image) {
    return load_module(module, image, &(struct gf_jit_log){0});
}

CUresult gf_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned numOptions,
                               CUjit_option *options, void **optionValues) {
    struct gf_jit_log log;
    CUresult result = gf_jit_options(numOptions, options, optionValues, &log);
    return result != CUDA_SUCCESS ? result : load_module(module, image, &log);
}

CUresult gf_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return gf_cuModuleLoadData(module, fatCubin);
}

CUresult gf_cuModuleUnload(CUmodule hmod) {
    struct gf_module *module = gf_module_find(hmod);
    if (module == NULL || module->library != 0 || !gf_table_end(module)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct gf_req_cuModuleUnload request = {.hmod = (uint64_t)hmod};
    CUresult result = gf_send_struct(GF_OP_cuModuleUnload, &request);
    gf_module_end(&gf_modules, module, (uint64_t)hmod);
    return result;
}

CUresult gf_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult gf_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    struct gf_module *module = gf_module_find(hmod);
    if (hfunc == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int index = gf_kernel_table_find(module->table, name);
    return index < 0 ? CUDA_ERROR_NOT_FOUND
                     : gf_module_callable(module, (uint64_t)hmod, (uint32_t)index, (uint64_t *)hfunc);
}

CUresult gf_cuModuleGetFunctionCount(unsigned *count, CUmodule mod) {
    struct gf_module *module = gf_module_find(mod);
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *count = module->table->count;
    return CUDA_SUCCESS;
}

CUresult gf_cuModuleEnumerateFunctions(CUfunction *functions_, unsigned numFunctions, CUmodule mod) {
    struct gf_module *module = gf_module_find(mod);
    if (functions_ == NULL || numFunctions == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < numFunctions && i < module->table->count && result == CUDA_SUCCESS; i++) {
        result = gf_module_callable(module, (uint64_t)mod, i, (uint64_t *)&functions_[i]);
    }
    return result;
}

CUresult gf_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    struct gf_module *module = gf_module_find(hmod);
    return module == NULL ? CUDA_ERROR_INVALID_HANDLE
                          : gf_module_global(module, (uint64_t)hmod, name, dptr, bytes);
}
