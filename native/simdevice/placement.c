#include "placement.h"
#include "addresses.h"
#include "config.h"
#include "pages.h"
#include "variance.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REGION_PAGES ((SIM_VARIABLES_END - SIM_VARIABLES_BEGIN) / SIM_PAGE)
#define PROBES       64

enum { BUCKETS = 4096 };

/* The places of one content, by their numbers. */
struct sim_family {
    uint8_t content[32];
    enum sim_placed what;
    struct sim_place **places; /* NULL where a number is free */
    uint32_t capacity, count;
    uint32_t lowest; /* below it, all numbers are taken and not on their way out */
    struct sim_family *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static struct sim_family *families[BUCKETS];

/* splitmix64's finaliser: every bit depends on every other */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static struct sim_family **bucket_of(const uint8_t *content) {
    uint32_t number;
    memcpy(&number, content, sizeof number);
    return &families[number % BUCKETS];
}

/* The family of that content, made if there is none; NULL when memory is exhausted. Lock held. */
static struct sim_family *find_family(const uint8_t *content, enum sim_placed what) {
    struct sim_family **bucket = bucket_of(content);
    for (struct sim_family *family = *bucket; family; family = family->next)
        if (family->what == what && memcmp(family->content, content, 32) == 0)
            return family;
    struct sim_family *family = calloc(1, sizeof *family);
    if (family) {
        memcpy(family->content, content, sizeof family->content);
        family->what = what;
        family->next = *bucket;
        *bucket = family;
    }
    return family;
}

/* A family that has no places any more goes. Lock held. */
static void leave_family(struct sim_family *family) {
    if (family->count)
        return;
    struct sim_family **link = bucket_of(family->content);
    while (*link != family)
        link = &(*link)->next;
    *link = family->next;
    free(family->places);
    free(family);
}

/* Room for one more number than there are. Lock held. */
static bool make_room(struct sim_family *family) {
    if (family->count < family->capacity)
        return true;
    uint32_t capacity = 2 * family->capacity + 4;
    struct sim_place **grown = realloc(family->places, capacity * sizeof(struct sim_place *));
    if (!grown)
        return false;
    memset(grown + family->capacity, 0, (capacity - family->capacity) * sizeof(struct sim_place *));
    family->places = grown;
    family->capacity = capacity;
    return true;
}

/* Takes the lowest number that no place of the same content has; one whose place is on its way out is waited
 * for. Lock held, given up while waiting. */
static bool join_family(struct sim_place *place, const uint8_t *content) {
    for (;;) {
        struct sim_family *family = find_family(content, place->what);
        if (!family)
            return false;
        if (!make_room(family)) {
            leave_family(family);
            return false;
        }
        while (family->places[family->lowest] && !family->places[family->lowest]->retired)
            family->lowest++;
        if (!family->places[family->lowest]) {
            place->family = family;
            place->instance = family->lowest;
            family->places[family->lowest++] = place;
            family->count++;
            return true;
        }
        pthread_cond_wait(&released, &lock); /* the family may be gone then */
    }
}

/* Its number may be taken again. Lock held. */
static void free_number(struct sim_place *place) {
    if (place->instance < place->family->lowest)
        place->family->lowest = place->instance;
}

static void quit_family(struct sim_place *place) {
    free_number(place);
    place->family->places[place->instance] = NULL;
    place->family->count--;
    leave_family(place->family);
}

/* What makes the places of this process others than those of another. Lock held. */
static uint64_t layout(void) {
    static uint64_t drawn;
    switch (sim_config_get()->placing) {
    case SIM_PLACED_BY_LAYOUT:
        return (uint64_t)&families / SIM_PAGE;
    case SIM_PLACED_BY_PROCESS:
        while (!drawn)
            if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
                drawn = 0;
        return drawn;
    default:
        return 0;
    }
}

/* From where its number says, onwards past what is taken. */
static bool map(struct sim_place *place) {
    uint64_t seed;
    memcpy(&seed, place->family->content, sizeof seed);
    uint64_t elsewhere = sim_choice(SIM_OPEN_VARIABLES, UINT64_MAX) + layout();
    uint64_t page = mix(mix(seed + place->what + elsewhere) + place->instance);
    for (int probe = 0; probe < PROBES; probe++, page += place->size / SIM_PAGE + 1) {
        place->base = SIM_VARIABLES_BEGIN + page % REGION_PAGES * SIM_PAGE;
        if (sim_pages_new_at(place->base, place->size))
            return true;
    }
    place->base = sim_pages_new(place->size); /* no such addresses in this process */
    return place->base != 0;
}

struct sim_place *sim_place_take(const struct sim_image *image, enum sim_placed what, uint64_t size) {
    struct sim_place *place = calloc(1, sizeof *place);
    if (!place)
        return NULL;
    place->what = what;
    place->size = size;
    pthread_mutex_lock(&lock);
    bool done = join_family(place, sim_image_content(image));
    if (done && !map(place)) {
        quit_family(place);
        done = false;
    }
    pthread_mutex_unlock(&lock);
    if (!done) {
        free(place);
        return NULL;
    }
    return place;
}

void sim_place_retire(struct sim_place *place) {
    if (!place)
        return;
    pthread_mutex_lock(&lock);
    place->retired = true;
    free_number(place);
    pthread_mutex_unlock(&lock);
}

void sim_place_release(struct sim_place *place) {
    if (!place)
        return;
    pthread_mutex_lock(&lock);
    sim_pages_free(place->base, place->size);
    quit_family(place);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
    free(place);
}
