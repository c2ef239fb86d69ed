/* A treap: a binary search tree by address that random weights keep balanced. */
#include "range.h"
#include "context.h"

struct sim_ranges sim_memory = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static uint64_t end_of(const struct sim_range *range) {
    return range->base + (range->size ? range->size : 1);
}

static uint32_t random_weight(void) {
    static uint32_t seed = 2463534242u; /* xorshift; under the trees' write locks, and any value will do */
    uint32_t x = __atomic_load_n(&seed, __ATOMIC_RELAXED);
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    __atomic_store_n(&seed, x, __ATOMIC_RELAXED);
    return x;
}

/* The first range that ends behind the address. */
static struct sim_range *first_behind(struct sim_range *node, uint64_t address) {
    struct sim_range *best = NULL;
    while (node) {
        if (end_of(node) > address) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

/* Splits into those that begin before `base` and the others. */
static void split(struct sim_range *node, uint64_t base, struct sim_range **low, struct sim_range **high) {
    while (node) {
        if (node->base < base) {
            *low = node;
            low = &node->right;
            node = node->right;
        } else {
            *high = node;
            high = &node->left;
            node = node->left;
        }
    }
    *low = *high = NULL;
}

static struct sim_range *merge(struct sim_range *low, struct sim_range *high) {
    struct sim_range *root, **place = &root;
    while (low && high) {
        if (low->weight > high->weight) {
            *place = low;
            place = &low->right;
            low = low->right;
        } else {
            *place = high;
            place = &high->left;
            high = high->left;
        }
    }
    *place = low ? low : high;
    return root;
}

/* Write lock held. */
static void link_to_context(struct sim_range *range) {
    if (!range->context)
        return;
    range->previous_of_context = NULL;
    range->next_of_context = range->context->ranges;
    if (range->next_of_context)
        range->next_of_context->previous_of_context = range;
    range->context->ranges = range;
    range->linked = true;
}

static void unlink_from_context(struct sim_range *range) {
    if (!range->linked)
        return;
    if (range->next_of_context)
        range->next_of_context->previous_of_context = range->previous_of_context;
    *(range->previous_of_context ? &range->previous_of_context->next_of_context : &range->context->ranges) =
        range->next_of_context;
    range->linked = false;
}

bool sim_ranges_find_of(struct sim_ranges *ranges, const struct sim_context *context, uint64_t *base) {
    pthread_rwlock_rdlock(&ranges->lock);
    bool found = context->ranges != NULL;
    if (found)
        *base = context->ranges->base;
    pthread_rwlock_unlock(&ranges->lock);
    return found;
}

bool sim_ranges_insert(struct sim_ranges *ranges, struct sim_range *range) {
    pthread_rwlock_wrlock(&ranges->lock);
    struct sim_range *next = first_behind(ranges->root, range->base);
    bool fits = !next || next->base >= end_of(range);
    if (fits) {
        struct sim_range **place = &ranges->root;
        range->weight = random_weight();
        while (*place && (*place)->weight > range->weight)
            place = range->base < (*place)->base ? &(*place)->left : &(*place)->right;
        split(*place, range->base, &range->left, &range->right);
        *place = range;
        link_to_context(range);
    }
    pthread_rwlock_unlock(&ranges->lock);
    return fits;
}

struct sim_range *sim_ranges_remove(struct sim_ranges *ranges, uint64_t base,
                                    bool (*accept)(struct sim_range *range)) {
    pthread_rwlock_wrlock(&ranges->lock);
    struct sim_range **place = &ranges->root;
    while (*place && (*place)->base != base)
        place = base < (*place)->base ? &(*place)->left : &(*place)->right;
    struct sim_range *range = *place;
    if (range && accept && !accept(range))
        range = NULL;
    if (range) {
        *place = merge(range->left, range->right);
        unlink_from_context(range);
    }
    pthread_rwlock_unlock(&ranges->lock);
    return range;
}

bool sim_ranges_find(struct sim_ranges *ranges, uint64_t address, struct sim_range *copy) {
    return sim_ranges_find_next(ranges, address, copy) && copy->base <= address;
}

bool sim_ranges_find_next(struct sim_ranges *ranges, uint64_t address, struct sim_range *copy) {
    pthread_rwlock_rdlock(&ranges->lock);
    struct sim_range *range = first_behind(ranges->root, address);
    if (range)
        *copy = *range;
    pthread_rwlock_unlock(&ranges->lock);
    return range != NULL;
}

bool sim_ranges_change(struct sim_ranges *ranges, uint64_t address,
                       bool (*change)(struct sim_range *, void *), void *argument) {
    pthread_rwlock_wrlock(&ranges->lock);
    struct sim_range *range = first_behind(ranges->root, address);
    bool result = range && range->base <= address && change(range, argument);
    pthread_rwlock_unlock(&ranges->lock);
    return result;
}
