/* The table of views. Numbers are dense and the lowest free one is taken, as with NVIDIA's driver. */
#include "view.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic(struct sim_view *) views[SIM_MOST_VIEWS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t first_free = 1; /* none below is free */
static struct sim_view *withdrawn;
static _Atomic uint32_t grids;

uint32_t sim_view_publish(const struct sim_view *view) {
    struct sim_view *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return 0;
    *copy = *view;
    pthread_mutex_lock(&lock);
    while (first_free < SIM_MOST_VIEWS && atomic_load(&views[first_free]) != NULL)
        first_free++;
    uint32_t number = first_free < SIM_MOST_VIEWS ? first_free : 0;
    if (number != 0)
        atomic_store(&views[number], copy);
    pthread_mutex_unlock(&lock);
    if (number == 0)
        free(copy);
    return number;
}

/* Under the lock. A grid that begins from now on finds none of these. */
static void sweep(void) {
    if (atomic_load(&grids) != 0)
        return;
    while (withdrawn != NULL) {
        struct sim_view *view = withdrawn;
        withdrawn = view->next;
        free(view);
    }
}

void sim_view_withdraw(uint32_t number) {
    pthread_mutex_lock(&lock);
    struct sim_view *view = atomic_exchange(&views[number], NULL);
    if (view != NULL) {
        view->next = withdrawn;
        withdrawn = view;
    }
    if (number < first_free)
        first_free = number;
    sweep();
    pthread_mutex_unlock(&lock);
}

void sim_views_enter(void) {
    atomic_fetch_add(&grids, 1);
}

void sim_views_leave(void) {
    if (atomic_fetch_sub(&grids, 1) != 1)
        return;
    pthread_mutex_lock(&lock);
    sweep();
    pthread_mutex_unlock(&lock);
}

const struct sim_view *sim_view_find(uint64_t number, enum sim_view_kind kind) {
    const struct sim_view *view = number < SIM_MOST_VIEWS ? atomic_load(&views[number]) : NULL;
    return view != NULL && view->kind == kind ? view : NULL;
}
