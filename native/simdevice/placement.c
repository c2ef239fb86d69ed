#include "placement.h"
#include "pages.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Below the other device memory, above the sanitizers' shadow, and nowhere near what the system places. */
#define REGION_BEGIN UINT64_C(0x110000000000)
#define REGION_PAGES (UINT64_C(1) << 31)
#define PROBES       64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static struct sim_place *places;

/* splitmix64's finaliser: every bit depends on every other */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool alike(const struct sim_place *one, const struct sim_place *other) {
    return one->what == other->what && memcmp(one->content, other->content, 32) == 0;
}

/* Takes the lowest number that no place of the same content has. Lock held, given up while waiting. */
static void choose_instance(struct sim_place *place) {
    for (const struct sim_place *other = places; other;) {
        if (!alike(place, other) || other->instance != place->instance) {
            other = other->next;
            continue;
        }
        if (other->retired)
            pthread_cond_wait(&released, &lock);
        else
            place->instance++;
        other = places;
    }
}

/* From where its number says, onwards past what is taken. */
static bool map(struct sim_place *place) {
    uint64_t seed;
    memcpy(&seed, place->content, sizeof seed);
    uint64_t page = mix(mix(seed + place->what) + place->instance);
    for (int probe = 0; probe < PROBES; probe++, page += place->size / SIM_PAGE + 1) {
        place->base = REGION_BEGIN + page % REGION_PAGES * SIM_PAGE;
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
    place->content = sim_image_content(image);
    place->what = what;
    place->size = size;
    pthread_mutex_lock(&lock);
    choose_instance(place);
    bool mapped = map(place);
    if (mapped) {
        place->next = places;
        places = place;
    }
    pthread_mutex_unlock(&lock);
    if (!mapped) {
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
    pthread_mutex_unlock(&lock);
}

void sim_place_release(struct sim_place *place) {
    if (!place)
        return;
    pthread_mutex_lock(&lock);
    struct sim_place **link = &places;
    while (*link != place)
        link = &(*link)->next;
    *link = place->next;
    sim_pages_free(place->base, place->size);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
    free(place);
}
