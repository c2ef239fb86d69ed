/* Images: opened once for each content, their kernels compiled when first asked for. */
#define _GNU_SOURCE
#include "cache.h"
#include "engine.h"
#include "index.h"
#include "service.h"
#include "wire/sha256.h"
#include "skip.h"
#include "sniff.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_image {
    uint8_t content[32]; /* hash of the image alone */
    uint8_t key[32];     /* of the image, the device and the compiler */
    int cc;
    uint32_t users;
    struct sim_image *next;
    struct sim_blob index;
    uint64_t charged; /* for it */
    const struct sim_index_header *header;
    const void *source;
    struct sim_kernel_info *kernel_infos;
    struct sim_variable_info *variables;
    struct sim_kernel *kernels;
    pthread_mutex_t lock; /* of the kernels while they are made */
};

enum { BUCKETS = 4096 };
/* Of what is made from open images, in host memory: their indices hold their text. */
static const uint64_t MOST_BYTES = 1ull << 30;
static _Atomic uint64_t open_bytes;

static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_image *images[BUCKETS]; /* by their keys */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    pthread_mutex_lock(&images_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&images_lock);
}

static void after_fork_in_child(void) {
    pthread_mutex_init(&images_lock, NULL);
    for (int i = 0; i < BUCKETS; i++)
        for (struct sim_image *image = images[i]; image != NULL; image = image->next)
            pthread_mutex_init(&image->lock, NULL);
}

static void init(void) {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static struct sim_image **bucket_of(const uint8_t key[32]) {
    uint32_t number;
    memcpy(&number, key, sizeof number);
    return &images[number % BUCKETS];
}

static void content_of(const struct sim_image_parts *parts, uint8_t content[32]) {
    struct gf_sha256 hash;
    gf_sha256_init(&hash);
    for (uint32_t i = 0; i < parts->count; i++) {
        gf_sha256_update(&hash, &parts->items[i].size, sizeof parts->items[i].size);
        gf_sha256_update(&hash, parts->items[i].data, parts->items[i].size);
    }
    gf_sha256_final(&hash, content);
}

/* The arrays of an index, taken one after another from its bytes. */
struct cursor {
    const uint8_t *at;
    size_t left;
};

static const void *take(struct cursor *cursor, uint64_t count, uint64_t size) {
    if (count > cursor->left / size)
        return NULL;
    const void *taken = cursor->at;
    uint64_t bytes = (count * size + 7) & ~7ull;
    if (bytes > cursor->left)
        return NULL;
    cursor->at += bytes;
    cursor->left -= bytes;
    return taken;
}

struct tables {
    const struct sim_index_kernel *kernels;
    const struct sim_index_variable *variables;
    const struct sim_relocation *relocations;
    const struct sim_param_info *params;
    const uint8_t *data;
    const char *strings;
};

static const char *string_at(const struct sim_image *image, const struct tables *t, uint32_t offset) {
    uint64_t left = offset < image->header->string_bytes ? image->header->string_bytes - offset : 0;
    return left != 0 && memchr(t->strings + offset, 0, left) != NULL ? t->strings + offset : NULL;
}

static uint32_t block_limit(const struct sim_index_kernel *k) {
    bool less = k->max_threads && k->max_threads < MAX_BLOCK_THREADS;
    return less ? k->max_threads : MAX_BLOCK_THREADS;
}

static bool read_kernel(struct sim_image *image, const struct tables *t, uint32_t i) {
    const struct sim_index_kernel *k = &t->kernels[i];
    const struct sim_index_header *header = image->header;
    image->kernel_infos[i] =
        (struct sim_kernel_info){.name = string_at(image, t, k->name),
                                 .params = t->params + k->first_param,
                                 .param_count = k->param_count,
                                 .param_bytes = k->param_bytes,
                                 .shared_static = k->shared_static,
                                 .local_bytes = k->local_bytes,
                                 .const_bytes = k->const_bytes,
                                 .registers = k->registers,
                                 .max_threads = block_limit(k),
                                 .required = {k->required[0], k->required[1], k->required[2]},
                                 .cluster = {k->cluster[0], k->cluster[1], k->cluster[2]},
                                 .most_cluster = k->most_cluster,
                                 .explicit_cluster = k->explicit_cluster,
                                 .handle = k->handle,
                                 .ptx_version = header->target,
                                 .binary_version = header->binary ? header->binary : (uint32_t)image->cc};
    image->kernels[i].info = &image->kernel_infos[i];
    image->kernels[i].image = image;
    image->kernels[i].all = image->kernels;
    image->kernels[i].count = header->kernel_count;
    return image->kernel_infos[i].name != NULL &&
           (uint64_t)k->first_param + k->param_count <= header->param_count;
}

static bool read_variable(struct sim_image *image, const struct tables *t, uint32_t i) {
    const struct sim_index_variable *v = &t->variables[i];
    const struct sim_index_header *header = image->header;
    bool zero = v->initial == SIM_INDEX_NONE;
    image->variables[i] = (struct sim_variable_info){.name = string_at(image, t, v->name),
                                                     .size = v->size,
                                                     .align = v->align,
                                                     .initial = zero ? NULL : t->data + v->initial,
                                                     .relocations = t->relocations + v->first_relocation,
                                                     .relocation_count = v->relocation_count,
                                                     .is_const = v->flags & 1,
                                                     .is_managed = (v->flags & 2) != 0,
                                                     .reference = (v->flags >> 2) & 3};
    if (image->variables[i].name == NULL ||
        (uint64_t)v->first_relocation + v->relocation_count > header->relocation_count ||
        (!zero && (v->initial > header->data_bytes || v->size > header->data_bytes - v->initial)))
        return false;
    for (uint32_t n = 0; n < v->relocation_count; n++) {
        const struct sim_relocation *r = &t->relocations[v->first_relocation + n];
        if (r->variable >= header->variable_count || r->count > 8 || r->first > 8 - r->count ||
            r->offset > v->size || r->count > v->size - r->offset)
            return false;
    }
    return true;
}

static bool read_index(struct sim_image *image) {
    struct cursor cursor = {image->index.data, image->index.size};
    struct tables t;
    const struct sim_index_header *h = image->header = take(&cursor, 1, sizeof *h);
    if (h == NULL || h->magic != SIM_INDEX_MAGIC ||
        (t.kernels = take(&cursor, h->kernel_count, sizeof *t.kernels)) == NULL ||
        (t.variables = take(&cursor, h->variable_count, sizeof *t.variables)) == NULL ||
        (t.relocations = take(&cursor, h->relocation_count, sizeof *t.relocations)) == NULL ||
        (t.params = take(&cursor, h->param_count, sizeof *t.params)) == NULL ||
        (t.data = take(&cursor, h->data_bytes, 1)) == NULL ||
        (t.strings = take(&cursor, h->string_bytes, 1)) == NULL ||
        (image->source = take(&cursor, h->source_bytes, 1)) == NULL)
        return false;
    image->kernel_infos = calloc(h->kernel_count + 1, sizeof *image->kernel_infos);
    image->kernels = calloc(h->kernel_count + 1, sizeof *image->kernels);
    image->variables = calloc(h->variable_count + 1, sizeof *image->variables);
    if (image->kernel_infos == NULL || image->kernels == NULL || image->variables == NULL)
        return false;
    for (uint32_t i = 0; i < h->kernel_count; i++)
        if (!read_kernel(image, &t, i))
            return false;
    for (uint32_t i = 0; i < h->variable_count; i++)
        if (!read_variable(image, &t, i))
            return false;
    return true;
}

static void unload(struct sim_object *object) {
    atomic_fetch_sub(&open_bytes, object->size);
    sim_object_unload(object);
}

/* Before it is kept; false: there is too much already. */
static bool charge(uint64_t bytes) {
    if (atomic_fetch_add(&open_bytes, bytes) + bytes <= MOST_BYTES)
        return true;
    atomic_fetch_sub(&open_bytes, bytes);
    return false;
}

static void destroy(struct sim_image *image) {
    if (image->kernels != NULL)
        for (uint32_t i = 0; i < image->header->kernel_count; i++)
            for (int n = 0; n < 2; n++)
                unload(&image->kernels[i].objects[n]);
    free(image->kernels);
    free(image->kernel_infos);
    free(image->variables);
    atomic_fetch_sub(&open_bytes, image->charged);
    sim_blob_free(&image->index);
    pthread_mutex_destroy(&image->lock);
    free(image);
}

/* The service reads the parts of a wrapper one after another, and each says how long it is. */
static CUresult parse(const struct sim_image_parts *parts, struct sim_image *image, char *log,
                      size_t log_size) {
    size_t total = 0, used = 0;
    for (uint32_t i = 0; i < parts->count; i++)
        total += parts->items[i].size;
    uint8_t *joined = NULL;
    if (parts->count > 1 && (joined = malloc(total)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; joined != NULL && i < parts->count; i++) {
        memcpy(joined + used, parts->items[i].data, parts->items[i].size);
        used += parts->items[i].size;
    }
    const void *payload = joined != NULL ? joined : parts->items[0].data;
    CUresult result = sim_service_call(SIM_SERVICE_OPEN, image->cc, image->key, payload, total, NULL, 0,
                                       &image->index, log, log_size);
    free(joined);
    return result;
}

static CUresult create(const struct sim_image_parts *parts, const uint8_t content[32], const uint8_t key[32],
                       int cc, struct sim_image **out, char *log, size_t log_size) {
    char name[SIM_CACHE_NAME];
    struct sim_image *image = calloc(1, sizeof *image);
    if (image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&image->lock, NULL);
    memcpy(image->content, content, sizeof image->content);
    memcpy(image->key, key, sizeof image->key);
    image->cc = cc;
    image->users = 1;
    sim_cache_name(key, ".index", name);
    bool cached = sim_cache_load(name, &image->index);
    CUresult result = cached ? CUDA_SUCCESS : parse(parts, image, log, log_size);
    if (result == CUDA_SUCCESS && !charge(image->index.size)) {
        snprintf(log, log_size, "the code that is loaded takes more than %llu MiB of host memory",
                 (unsigned long long)(MOST_BYTES >> 20));
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (result == CUDA_SUCCESS) {
        image->charged = image->index.size;
    }
    if (result == CUDA_SUCCESS && !read_index(image)) {
        snprintf(log, log_size, "the PTX compiler's index of the image is damaged");
        result = CUDA_ERROR_INVALID_IMAGE;
    }
    if (result != CUDA_SUCCESS) {
        destroy(image);
        return result;
    }
    if (!cached)
        sim_cache_store(name, image->index.data, image->index.size);
    *out = image;
    return CUDA_SUCCESS;
}

static struct sim_image *find_open(const uint8_t key[32]) {
    for (struct sim_image *image = *bucket_of(key); image != NULL; image = image->next)
        if (memcmp(image->key, key, 32) == 0) {
            image->users++;
            return image;
        }
    return NULL;
}

CUresult sim_image_open(const void *data, size_t size, int cc, char *log, size_t log_size,
                        struct sim_image **out) {
    char reason[2048] = "";
    uint8_t content[32], key[32];
    struct sim_image_parts parts;
    struct sim_image *known = NULL;
    pthread_once(&once, init);
    sim_skip_tell();
    CUresult result = sim_image_sniff(data, size, &parts, reason, sizeof reason);
    if (result == CUDA_SUCCESS) {
        content_of(&parts, content);
        sim_service_key(content, cc, key);
        pthread_mutex_lock(&images_lock);
        known = find_open(key);
        pthread_mutex_unlock(&images_lock);
        *out = known;
        if (known == NULL)
            result = create(&parts, content, key, cc, out, reason, sizeof reason);
    }
    sim_image_parts_free(&parts);
    if (known != NULL)
        return CUDA_SUCCESS;
    if (log != NULL && log_size != 0)
        snprintf(log, log_size, "%s", reason);
    if (result != CUDA_SUCCESS) {
        sim_message(SIM_LOG_ERROR, "cannot load a module: %s", reason);
        return result;
    }
    pthread_mutex_lock(&images_lock);
    struct sim_image *other = find_open(key);
    if (other == NULL) {
        struct sim_image **bucket = bucket_of(key);
        (*out)->next = *bucket;
        *bucket = *out;
    }
    pthread_mutex_unlock(&images_lock);
    if (other != NULL) { /* another thread was faster */
        destroy(*out);
        *out = other;
    }
    return CUDA_SUCCESS;
}

void sim_image_keep(struct sim_image *image) {
    pthread_mutex_lock(&images_lock);
    image->users++;
    pthread_mutex_unlock(&images_lock);
}

void sim_image_close(struct sim_image *image) {
    pthread_mutex_lock(&images_lock);
    bool last = --image->users == 0;
    for (struct sim_image **link = bucket_of(image->key); last && *link != NULL; link = &(*link)->next)
        if (*link == image) {
            *link = image->next;
            break;
        }
    pthread_mutex_unlock(&images_lock);
    if (last)
        destroy(image);
}

const uint8_t *sim_image_content(const struct sim_image *image) {
    return image->content;
}

uint32_t sim_image_kernel_count(const struct sim_image *image) {
    return image->header->kernel_count;
}

const struct sim_kernel_info *sim_image_kernel(const struct sim_image *image, uint32_t index) {
    return &image->kernel_infos[index];
}

uint32_t sim_image_variable_count(const struct sim_image *image) {
    return image->header->variable_count;
}

const struct sim_variable_info *sim_image_variable(const struct sim_image *image, uint32_t index) {
    return &image->variables[index];
}

static CUresult compile(struct sim_image *image, enum sim_service_op op, const char *kernel,
                        struct sim_blob *object, char *log, size_t log_size) {
    CUresult result = sim_service_call(op, image->cc, image->key, kernel, strlen(kernel) + 1, NULL, 0, object,
                                       log, log_size);
    if (result != SIM_SERVICE_UNKNOWN_MODULE)
        return result;
    return sim_service_call(op, image->cc, image->key, kernel, strlen(kernel) + 1, image->source,
                            image->header->source_bytes, object, log, log_size);
}

/* Into executable memory, which is charged as the image is. */
static CUresult load(struct sim_object *object, const struct sim_blob *file, char *log, size_t log_size) {
    if (!sim_object_load(file->data, file->size, object, log, log_size))
        return CUDA_ERROR_INVALID_PTX;
    if (charge(object->size))
        return CUDA_SUCCESS;
    sim_object_unload(object);
    snprintf(log, log_size, "the code that is loaded takes too much host memory");
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Optimised code and code that was made quickly have files of their own. */
static void name_of(const struct sim_kernel *kernel, bool quick, char name[SIM_CACHE_NAME]) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".%u%s.o", (unsigned)(kernel - kernel->image->kernels),
             quick ? ".quick" : "");
    sim_cache_name(kernel->image->key, suffix, name);
}

/* False: there is none that can be used. */
static bool load_cached(struct sim_kernel *kernel, bool quick, CUresult *result, char *log, size_t log_size) {
    char name[SIM_CACHE_NAME];
    struct sim_blob file;
    name_of(kernel, quick, name);
    if (!sim_cache_load(name, &file))
        return false;
    *result = load(&kernel->objects[0], &file, log, log_size);
    sim_blob_free(&file);
    return *result != CUDA_ERROR_INVALID_PTX;
}

static CUresult make(struct sim_kernel *kernel, struct sim_object *object, enum sim_service_op op, char *log,
                     size_t log_size) {
    char name[SIM_CACHE_NAME];
    struct sim_blob file;
    CUresult result = compile(kernel->image, op, kernel->info->name, &file, log, log_size);
    if (result != CUDA_SUCCESS)
        return result;
    result = load(object, &file, log, log_size);
    name_of(kernel, object->quick, name);
    if (result == CUDA_SUCCESS)
        sim_cache_store(name, file.data, file.size);
    sim_blob_free(&file);
    return result;
}

static CUresult prepare(struct sim_kernel *kernel, char *log, size_t log_size) {
    CUresult result;
    bool quickly = sim_tier_policy() != SIM_TIERS_OPTIMISED_ONLY;
    if (load_cached(kernel, false, &result, log, log_size) ||
        (quickly && load_cached(kernel, true, &result, log, log_size)))
        return result;
    enum sim_service_op op = quickly ? SIM_SERVICE_COMPILE : SIM_SERVICE_OPTIMISE;
    return make(kernel, &kernel->objects[0], op, log, log_size);
}

CUresult sim_kernel_prepare(struct sim_image *image, uint32_t index, struct sim_kernel **out) {
    struct sim_kernel *kernel = &image->kernels[index];
    *out = kernel;
    if (sim_code_skipped())
        return CUDA_SUCCESS;
    if (atomic_load_explicit(&kernel->code, memory_order_acquire) != NULL)
        return CUDA_SUCCESS;
    char log[2048] = "";
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&image->lock);
    if (atomic_load_explicit(&kernel->code, memory_order_relaxed) == NULL) {
        result = prepare(kernel, log, sizeof log);
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&kernel->code, &kernel->objects[0], memory_order_release);
    }
    pthread_mutex_unlock(&image->lock);
    if (result != CUDA_SUCCESS)
        sim_message(SIM_LOG_ERROR, "cannot compile kernel %s: %s", kernel->info->name, log);
    return result;
}

void sim_kernel_optimise(struct sim_kernel *kernel) {
    char log[2048] = "";
    CUresult result = make(kernel, &kernel->objects[1], SIM_SERVICE_OPTIMISE, log, sizeof log);
    if (result == CUDA_SUCCESS && kernel->objects[1].form == kernel->objects[0].form &&
        kernel->objects[1].rows == kernel->objects[0].rows)
        atomic_store_explicit(&kernel->code, &kernel->objects[1], memory_order_release);
    else
        sim_message(SIM_LOG_INFO, "kernel %s is not optimised: %s", kernel->info->name, log);
}
