/* Variables of modules and libraries: the server says where they lie. A managed one is memory that the
 * program reaches at the same address. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "channel.h"
#include "context.h"
#include "gpuferry/messages.h"
#include "functions.h"
#include "module.h"
#include "operations.h"
#include "session.h"
#include "shared.h"

#define IN_ALL_CONTEXTS UINT64_MAX /* a library's managed variable is the same one in all of them */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables of all modules */
static _Atomic unsigned global_count;
static _Atomic bool any_synchronous;  /* most programs never look for one */
static uint64_t next_id = 2ull << 32; /* apart from allocations' and page-locked memory's; guarded too */

/* Memory of modules that holds an address which only a kernel told the program. */
struct found {
    struct gf_module_memory variable;
    struct found *next;
};
static struct found *all_found; /* guarded by the lock as well */

static struct gf_global *known(struct gf_module *owner, uint64_t context, const char *name) {
    pthread_mutex_lock(&lock);
    struct gf_global *global = owner->globals;
    while (global != NULL && (global->context != context || strcmp(global->name, name) != 0)) {
        global = global->next;
    }
    pthread_mutex_unlock(&lock);
    return global;
}

/* A question that is answered beside another one. */
struct question {
    struct gf_call call;
    CUresult sent;
};

static void ask(struct question *question, const void *owner, const char *name) {
    struct iovec parts[] = {{(void *)owner, sizeof(uint64_t)}, {(char *)name, strlen(name)}};
    question->sent = gf_call_start(&question->call, parts, 2);
}

static CUresult answer(struct question *question) {
    CUresult waited = gf_call_wait(&question->call);
    free(question->call.payload);
    return question->sent != CUDA_SUCCESS ? question->sent : waited;
}

/* The memory that a managed variable is part of is here too from now on, until the module ends. */
static CUresult adopt(struct gf_module *owner, const struct gf_rep_sessionGetManaged *found) {
    bool in_library = gf_handle_kind(atomic_load(&owner->object.handle)) == GF_HANDLE_LIBRARY;
    return gf_shared_adopt(found->base, found->extent,
                           in_library ? gf_context_primary(gf_device_number()) : owner->object.owner);
}

static void drop(struct gf_global *globals) {
    while (globals != NULL) {
        struct gf_global *global = globals;
        globals = global->next;
        if (global->block != 0) {
            gf_shared_leave(global->block);
        }
        free(global->name);
        free(global);
        atomic_fetch_sub(&global_count, 1);
    }
}

/* Code is unloaded, or a context ends: something else may lie there, so the server is asked again. */
static void forget_found(void) {
    pthread_mutex_lock(&lock);
    struct found *found = all_found;
    all_found = NULL;
    pthread_mutex_unlock(&lock);
    while (found != NULL) {
        struct found *next = found->next;
        free(found);
        found = next;
    }
}

/* Variables of libraries in a context that ends: they may lie elsewhere when it begins again. */
static void end_context(uint64_t context) {
    struct gf_global *ended = NULL;
    forget_found();
    pthread_mutex_lock(&lock);
    for (uint32_t slot = 0; slot < gf_tables[GF_HANDLE_LIBRARY].slots; slot++) {
        struct gf_module *library = gf_table_at(&gf_tables[GF_HANDLE_LIBRARY], slot);
        struct gf_global **link = library != NULL ? &library->globals : NULL;
        while (link != NULL && *link != NULL) {
            struct gf_global *global = *link;
            if (global->context == context) {
                *link = global->next;
                global->next = ended;
                ended = global;
            } else {
                link = &global->next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    drop(ended);
}

static CUresult remember(struct gf_module *owner, const struct gf_global *found, struct gf_global **out) {
    struct gf_global *global = malloc(sizeof *global);
    char *name = global == NULL ? NULL : strdup(found->name);
    if (name == NULL) {
        free(global);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *global = *found;
    global->name = name;
    pthread_mutex_lock(&lock);
    global->id = next_id++;
    global->next = owner->globals;
    owner->globals = global;
    atomic_fetch_add(&global_count, 1);
    pthread_mutex_unlock(&lock);
    gf_context_at_end(end_context);
    *out = global;
    return CUDA_SUCCESS;
}

/* Whether it is managed is asked with the same round trip. */
static CUresult find_plain(struct gf_module *owner, uint64_t context, const char *name,
                           struct gf_global **out) {
    uint64_t handle = atomic_load(&owner->object.handle);
    struct gf_rep_sessionGetGlobal place = {0};
    struct gf_rep_sessionGetManaged managed = {0};
    struct question where = {
        .call = {.op = GF_OP_sessionGetGlobal, .reply = &place, .reply_size = sizeof place}};
    struct question whether = {
        .call = {.op = GF_OP_sessionGetManaged, .reply = &managed, .reply_size = sizeof managed}};
    bool asks = !gf_function_lacks[GF_FN_cuLibraryGetManaged];
    ask(&where, &handle, name);
    if (asks) {
        ask(&whether, &handle, name);
    }
    CUresult result = answer(&where), other = asks ? answer(&whether) : CUDA_ERROR_NOT_FOUND;
    struct gf_global found = {
        .name = (char *)name, .context = context, .address = place.address, .size = place.size};
    if (result == CUDA_SUCCESS && other == CUDA_SUCCESS) {
        found.block = managed.base;
        result = adopt(owner, &managed);
    }
    return result == CUDA_SUCCESS ? remember(owner, &found, out) : result;
}

/* The runtime asks for them before it has a context. */
static CUresult find_managed(struct gf_module *owner, const char *name, struct gf_global **out) {
    uint64_t handle = atomic_load(&owner->object.handle);
    uint32_t current = gf_thread.context_id;
    struct gf_rep_sessionGetManaged managed = {0};
    struct question where = {
        .call = {.op = GF_OP_sessionGetManaged, .reply = &managed, .reply_size = sizeof managed}};
    gf_thread.context_id = current != 0 ? current : gf_handle_slot(gf_context_primary(0)) + 1;
    ask(&where, &handle, name);
    CUresult result = answer(&where);
    gf_thread.context_id = current;
    struct gf_global found = {.name = (char *)name,
                              .context = IN_ALL_CONTEXTS,
                              .address = managed.address,
                              .size = managed.size,
                              .block = managed.base};
    result = result == CUDA_SUCCESS ? adopt(owner, &managed) : result;
    return result == CUDA_SUCCESS ? remember(owner, &found, out) : result;
}

static CUresult variable(struct gf_module *owner, bool managed, const char *name, CUdeviceptr *address,
                         size_t *size) {
    if (address == NULL && size == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (strlen(name) > UINT16_MAX) {
        return CUDA_ERROR_NOT_FOUND;
    }
    bool in_library = gf_handle_kind(atomic_load(&owner->object.handle)) == GF_HANDLE_LIBRARY;
    uint64_t context = managed ? IN_ALL_CONTEXTS : in_library ? gf_context_current_handle() : 0;
    struct gf_global *global = known(owner, context, name);
    if (global == NULL) {
        CUresult result =
            managed ? find_managed(owner, name, &global) : find_plain(owner, context, name, &global);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (address != NULL) {
        *address = global->address;
    }
    if (size != NULL) {
        *size = global->size;
    }
    return CUDA_SUCCESS;
}

CUresult gf_variable(struct gf_module *owner, const char *name, CUdeviceptr *address, size_t *size) {
    return variable(owner, false, name, address, size);
}

CUresult gf_managed_variable(struct gf_module *owner, const char *name, CUdeviceptr *address, size_t *size) {
    return variable(owner, true, name, address, size);
}

static uint64_t context_of(const struct gf_module *module, const struct gf_global *global) {
    return global->context == IN_ALL_CONTEXTS ? 0
           : global->context != 0             ? global->context
                                              : module->object.owner;
}

/* With `synchronous` it becomes so, or not. */
static bool find_in(struct gf_table *objects, uint64_t address, const bool *synchronous,
                    struct gf_module_memory *variable) {
    for (uint32_t slot = 0; slot < objects->slots; slot++) {
        struct gf_module *module = gf_table_at(objects, slot);
        for (struct gf_global *g = module != NULL ? module->globals : NULL; g != NULL; g = g->next) {
            if (address - g->address < g->size) {
                g->synchronous = synchronous != NULL ? *synchronous : g->synchronous;
                *variable = (struct gf_module_memory){g->address, g->size, g->id, context_of(module, g),
                                                      g->synchronous};
                return true;
            }
        }
    }
    return false;
}

static bool find_known(uint64_t address, const bool *synchronous, struct gf_module_memory *variable) {
    pthread_mutex_lock(&lock);
    bool known = atomic_load(&global_count) > 0 &&
                 (find_in(&gf_tables[GF_HANDLE_LIBRARY], address, synchronous, variable) ||
                  find_in(&gf_tables[GF_HANDLE_MODULE], address, synchronous, variable));
    for (struct found *f = all_found; f != NULL && !known; f = f->next) {
        if (address - f->variable.base < f->variable.size) {
            known = true;
            f->variable.synchronous = synchronous != NULL ? *synchronous : f->variable.synchronous;
            *variable = f->variable;
        }
    }
    pthread_mutex_unlock(&lock);
    return known;
}

static bool has_code(void) {
    return gf_tables[GF_HANDLE_LIBRARY].slots > 0 || gf_tables[GF_HANDLE_MODULE].slots > 0;
}

/* Whether the program, or the window, has anything at the address: then it is no module's. */
static bool is_mapped(uint64_t address) {
    unsigned char resident;
    return mincore((void *)(address & -(uint64_t)GF_STATE_PAGE), 1, &resident) == 0 || errno != ENOMEM;
}

/* The server is asked for what a kernel told the program, and nobody else. Of an earlier failure the next
 * call tells; and where no server is left, what is then done with the address: the program has nothing there.
 */
static bool ask_for(uint64_t address, struct gf_module_memory *variable) {
    const uint64_t context = gf_context_current_handle();
    const struct gf_req_sessionFindMemory request = {address};
    struct gf_rep_sessionFindMemory reply;
    struct found *found = malloc(sizeof *found);
    if (found == NULL || gf_call_making(GF_OP_sessionFindMemory, &request, sizeof request, &reply,
                                        sizeof reply) != CUDA_SUCCESS) {
        free(found);
        if (!gf_channel_lost()) {
            return false;
        }
        *variable = (struct gf_module_memory){address, UINT64_MAX - address, 0, context, false};
        return true;
    }
    gf_context_at_end(end_context);
    pthread_mutex_lock(&lock);
    *variable = (struct gf_module_memory){reply.base, reply.size, next_id++, context, false};
    *found = (struct found){*variable, all_found};
    all_found = found;
    pthread_mutex_unlock(&lock);
    return true;
}

bool gf_global_find(uint64_t address, struct gf_module_memory *variable) {
    return has_code() && (find_known(address, NULL, variable) ||
                          (gf_operation_agreed(GF_OP_sessionFindMemory) && gf_context_current_handle() != 0 &&
                           !is_mapped(address) && ask_for(address, variable)));
}

bool gf_global_is_synchronous(uint64_t address) {
    struct gf_module_memory variable;
    return atomic_load(&any_synchronous) && find_known(address, NULL, &variable) && variable.synchronous;
}

bool gf_global_synchronous(uint64_t address, bool synchronous) {
    struct gf_module_memory variable;
    atomic_store(&any_synchronous, true);
    return gf_global_find(address, &variable) && find_known(address, &synchronous, &variable);
}

void gf_globals_forget(struct gf_module *module) {
    forget_found();
    pthread_mutex_lock(&lock);
    struct gf_global *globals = module->globals;
    module->globals = NULL;
    pthread_mutex_unlock(&lock);
    drop(globals);
}
