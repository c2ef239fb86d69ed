/* Resources of a device and descriptors of them: which multiprocessors a green context has, and how its work
 * is queued. The numbers follow from the device's attributes alone, so guest and simulated device compute
 * them by the same source. Who includes this defines DRIVER(name), ENTER, and bool facts(CUdevice device,
 * unsigned *multiprocessors, int *major) which is false of a device that there is not.
 *
 * What a program cannot make up, which multiprocessors a resource stands for, is in `_internal_padding`. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device_resources.h"

#define MAGIC            UINT64_C(0x6766726573726331)
#define WORKLOADS        8 /* as many as CUDA_DEVICE_MAX_CONNECTIONS says if nobody sets it */
#define MOST_COSCHEDULED 32

/* How a resource may be split: a result of a split not at all, what a split left by cuDevSmResourceSplit. */
enum splits { BY_NOBODY, BY_GROUPS, BY_ALL };

struct gf_resource_inside {
    uint64_t magic;
    struct gf_multiprocessors which;
    uint32_t split; /* results of one split have one number; 0: of none */
    uint16_t device;
    uint16_t splits;
};
_Static_assert(sizeof(struct gf_resource_inside) <= sizeof((CUdevResource *)0)->_internal_padding, "it fits");

static _Atomic(struct gf_resources *) all_resources;
static _Atomic uint32_t last_split;

static unsigned count_of(const struct gf_multiprocessors *which) {
    unsigned count = 0;
    for (unsigned i = 0; i < GF_MOST_MULTIPROCESSORS / 64; i++) {
        count += (unsigned)__builtin_popcountll(which->bits[i]);
    }
    return count;
}

/* Moves the first `count` of `from` to `to`. */
static void take(struct gf_multiprocessors *from, unsigned count, struct gf_multiprocessors *to) {
    memset(to, 0, sizeof *to);
    for (unsigned i = 0; i < GF_MOST_MULTIPROCESSORS && count > 0; i++) {
        uint64_t bit = UINT64_C(1) << i % 64;
        if (from->bits[i / 64] & bit) {
            from->bits[i / 64] &= ~bit;
            to->bits[i / 64] |= bit;
            count--;
        }
    }
}

static unsigned least_of(int major) {
    return major >= 9 ? 8 : major == 8 ? 4 : major == 7 ? 2 : 1;
}

static unsigned alignment_of(int major) {
    return major >= 9 ? 8 : major >= 7 ? 2 : 1;
}

static void read_inside(const CUdevResource *resource, struct gf_resource_inside *inside) {
    memcpy(inside, resource->_internal_padding, sizeof *inside);
}

/* A resource of these multiprocessors; of none, one of no type. */
static void fill(CUdevResource *resource, const struct gf_resource_inside *inside, unsigned least,
                 unsigned alignment, unsigned flags) {
    memset(resource, 0, sizeof *resource);
    unsigned count = count_of(&inside->which);
    if (count > 0) {
        resource->type = CU_DEV_RESOURCE_TYPE_SM;
        resource->sm = (CUdevSmResource){.smCount = count,
                                         .minSmPartitionSize = least,
                                         .smCoscheduledAlignment = alignment,
                                         .flags = flags};
        memcpy(resource->_internal_padding, inside, sizeof *inside);
    }
}

/* What a context has: its multiprocessors, all of the device's if `given` is NULL, and its queue. */
static CUresult resource_of(CUdevice device, const struct gf_resources *given, CUdevResource *resource,
                            CUdevResourceType type) {
    struct gf_resource_inside inside = {.magic = MAGIC, .device = (uint16_t)device, .splits = BY_ALL};
    struct gf_multiprocessors any;
    unsigned count;
    int major;
    if (!facts(device, &count, &major)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    switch ((int)type) {
    case CU_DEV_RESOURCE_TYPE_SM:
        memset(&any, 0xff, sizeof any);
        take(&any, count, &inside.which);
        if (given != NULL) {
            inside.which = given->which;
        }
        fill(resource, &inside, least_of(major), given != NULL ? given->alignment : alignment_of(major), 0);
        return CUDA_SUCCESS;
    case CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG:
        memset(resource, 0, sizeof *resource);
        resource->type = type;
        resource->wqConfig = (CUdevWorkqueueConfigResource){
            .device = device, .wqConcurrencyLimit = WORKLOADS, .sharingScope = CU_WORKQUEUE_SCOPE_DEVICE_CTX};
        if (given != NULL && given->queue.type == type) {
            resource->wqConfig = given->queue.wqConfig;
        }
        return CUDA_SUCCESS;
    case CU_DEV_RESOURCE_TYPE_WORKQUEUE: /* all work of a device is in one */
        memset(resource, 0, sizeof *resource);
        resource->type = type;
        memcpy(resource->wq.reserved, &device, sizeof device);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
}

CUresult DRIVER(cuDeviceGetDevResource)(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    ENTER;
    return resource == NULL ? CUDA_ERROR_INVALID_VALUE : resource_of(device, NULL, resource, type);
}

/* What is to be split, if it may be. */
static CUresult splittable(const CUdevResource *input, enum splits by, struct gf_resource_inside *inside,
                           int *major) {
    unsigned count;
    if (input == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    read_inside(input, inside);
    if (inside->magic != MAGIC || !facts((CUdevice)inside->device, &count, major)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return inside->splits < by ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_SUCCESS;
}

static struct gf_resource_inside part_of(const struct gf_resource_inside *whole, uint32_t split,
                                         enum splits splits) {
    return (struct gf_resource_inside){
        .magic = MAGIC, .split = split, .device = whole->device, .splits = (uint16_t)splits};
}

CUresult DRIVER(cuDevSmResourceSplitByCount)(CUdevResource *result, unsigned *nbGroups,
                                             const CUdevResource *input, CUdevResource *remainder,
                                             unsigned flags, unsigned minCount) {
    const unsigned known =
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    struct gf_resource_inside whole, part;
    int major;
    ENTER;
    if (nbGroups == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult error = splittable(input, BY_ALL, &whole, &major);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    unsigned all = count_of(&whole.which), least = least_of(major), alignment = alignment_of(major);
    if ((flags & ~known) != 0 || minCount > all ||
        (flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE && major < 9)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) {
        least = alignment = major >= 7 ? 2 : 1;
    }
    unsigned size = minCount < least ? least : (minCount + alignment - 1) / alignment * alignment;
    unsigned possible = all / size;
    unsigned groups = result == NULL || *nbGroups == 0 || *nbGroups > possible ? possible : *nbGroups;
    uint32_t split = atomic_fetch_add(&last_split, 1) + 1;
    for (unsigned i = 0; i < groups; i++) {
        part = part_of(&whole, split, BY_NOBODY);
        take(&whole.which, size, &part.which);
        if (result != NULL && *nbGroups > 0) {
            fill(&result[i], &part, least, alignment, 0);
        }
    }
    if (remainder != NULL) {
        part = part_of(&whole, split, BY_GROUPS);
        part.which = whole.which;
        fill(remainder, &part, least, alignment, 0);
    }
    *nbGroups = groups;
    return CUDA_SUCCESS;
}

/* Whether a group may look so, on a device whose multiprocessors come in groups of up to `most`. */
static CUresult check_group(const CU_DEV_SM_RESOURCE_GROUP_PARAMS *group, unsigned all, unsigned most) {
    const unsigned known = CU_DEV_SM_RESOURCE_GROUP_BACKFILL | CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID |
                           CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS;
    unsigned together = group->coscheduledSmCount, preferred = group->preferredCoscheduledSmCount;
    for (unsigned i = 0; i < sizeof group->reserved / sizeof *group->reserved; i++) {
        if (group->reserved[i] != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if ((group->flags & ~known) != 0 || group->smCount % 2 != 0 || group->smCount > all ||
        together % 2 != 0 || together > most || preferred > most ||
        (together > 0 && preferred % together != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* How many multiprocessors the group gets of those that are left. */
static CUresult size_group(const CU_DEV_SM_RESOURCE_GROUP_PARAMS *group, unsigned left, unsigned together,
                           unsigned *size) {
    bool backfill = group->flags & CU_DEV_SM_RESOURCE_GROUP_BACKFILL;
    if (group->flags & ~(unsigned)CU_DEV_SM_RESOURCE_GROUP_BACKFILL) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION; /* no device here has localities */
    }
    unsigned unit = backfill ? 2 : together;
    *size = group->smCount > 0 ? group->smCount : left < together ? 0 : left / unit * unit;
    return *size % unit != 0 || *size > left || (*size > 0 && left < together)
               ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
               : CUDA_SUCCESS;
}

CUresult DRIVER(cuDevSmResourceSplit)(CUdevResource *result, unsigned nbGroups, const CUdevResource *input,
                                      CUdevResource *remainder, unsigned flags,
                                      CU_DEV_SM_RESOURCE_GROUP_PARAMS *groupParams) {
    struct gf_resource_inside whole, part;
    int major;
    ENTER;
    if (nbGroups == 0 || groupParams == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult error = splittable(input, BY_GROUPS, &whole, &major);
    unsigned all = error == CUDA_SUCCESS ? count_of(&whole.which) : 0, sizes[GF_MOST_MULTIPROCESSORS],
             left = all;
    if (error == CUDA_SUCCESS && nbGroups > GF_MOST_MULTIPROCESSORS) {
        error = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    for (unsigned i = 0; i < nbGroups && error == CUDA_SUCCESS; i++) {
        unsigned together = groupParams[i].coscheduledSmCount;
        together = together > 0 ? together : alignment_of(major) < 2 ? 2 : alignment_of(major);
        error = check_group(&groupParams[i], all, major >= 9 ? MOST_COSCHEDULED : 2);
        error = error == CUDA_SUCCESS ? size_group(&groupParams[i], left, together, &sizes[i]) : error;
        if (error == CUDA_SUCCESS && result != NULL && sizes[i] < together) {
            error = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        }
        left -= error == CUDA_SUCCESS ? sizes[i] : 0;
    }
    if (error != CUDA_SUCCESS) {
        return error;
    }
    uint32_t split = atomic_fetch_add(&last_split, 1) + 1;
    for (unsigned i = 0; i < nbGroups; i++) {
        unsigned together = groupParams[i].coscheduledSmCount;
        part = part_of(&whole, split, BY_NOBODY);
        take(&whole.which, sizes[i], &part.which);
        if (result != NULL) {
            fill(&result[i], &part, least_of(major), together > 0 ? together : alignment_of(major),
                 groupParams[i].flags);
        }
        groupParams[i].smCount = sizes[i];
    }
    if (remainder != NULL) {
        part = part_of(&whole, split, BY_GROUPS);
        part.which = whole.which;
        fill(remainder, &part, least_of(major), alignment_of(major), 0);
    }
    return CUDA_SUCCESS;
}

/* Adds multiprocessors to a descriptor: all from one split, none twice. */
static CUresult add_multiprocessors(struct gf_resources *to, const CUdevResource *resource, uint32_t *split) {
    struct gf_resource_inside inside;
    read_inside(resource, &inside);
    if (inside.magic != MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool first = count_of(&to->which) == 0;
    if ((to->device >= 0 && to->device != (CUdevice)inside.device) ||
        (!first && (inside.split == 0 || inside.split != *split ||
                    resource->sm.smCoscheduledAlignment != to->alignment))) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    for (unsigned i = 0; i < GF_MOST_MULTIPROCESSORS / 64; i++) {
        if (to->which.bits[i] & inside.which.bits[i]) {
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        }
        to->which.bits[i] |= inside.which.bits[i];
    }
    to->device = (CUdevice)inside.device;
    to->alignment = resource->sm.smCoscheduledAlignment;
    *split = inside.split;
    return CUDA_SUCCESS;
}

static CUresult add_queue(struct gf_resources *to, const CUdevResource *resource) {
    const CUdevWorkqueueConfigResource *config = &resource->wqConfig;
    unsigned count;
    int major;
    if (!facts(config->device, &count, &major) || config->wqConcurrencyLimit == 0 ||
        (unsigned)config->sharingScope > CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((to->device >= 0 && to->device != config->device) || to->queue.type != CU_DEV_RESOURCE_TYPE_INVALID) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    to->device = config->device;
    to->queue.type = resource->type;
    to->queue.wqConfig = *config;
    return CUDA_SUCCESS;
}

static CUresult add_device_queue(struct gf_resources *to, const CUdevResource *resource) {
    unsigned count;
    int major;
    CUdevice device;
    memcpy(&device, resource->wq.reserved, sizeof device);
    if (!facts(device, &count, &major)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (to->device >= 0 && to->device != device) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    to->device = device;
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuDevResourceGenerateDesc)(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                           unsigned nbResources) {
    struct gf_resources made = {.device = -1};
    CUdevResource whole;
    uint32_t split = 0;
    ENTER;
    if (phDesc == NULL || resources == NULL || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < nbResources; i++) {
        CUresult error =
            resources[i].type == CU_DEV_RESOURCE_TYPE_SM ? add_multiprocessors(&made, &resources[i], &split)
            : resources[i].type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG ? add_queue(&made, &resources[i])
            : resources[i].type == CU_DEV_RESOURCE_TYPE_WORKQUEUE ? add_device_queue(&made, &resources[i])
                                                                  : CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (error != CUDA_SUCCESS) {
            return error;
        }
    }
    if (count_of(&made.which) == 0) { /* queues alone: all multiprocessors */
        resource_of(made.device, NULL, &whole, CU_DEV_RESOURCE_TYPE_SM);
        add_multiprocessors(&made, &whole, &split);
    }
    struct gf_resources *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *kept = made;
    kept->next = atomic_load(&all_resources);
    while (!atomic_compare_exchange_weak(&all_resources, &kept->next, kept)) {
    }
    *phDesc = (CUdevResourceDesc)kept;
    return CUDA_SUCCESS;
}

/* What a descriptor names; NULL: nothing. */
static const struct gf_resources *resources_of(CUdevResourceDesc handle) {
    struct gf_resources *found = atomic_load(&all_resources);
    while (found != NULL && found != (struct gf_resources *)handle) {
        found = found->next;
    }
    return found;
}

#undef MAGIC
#undef WORKLOADS
#undef MOST_COSCHEDULED
