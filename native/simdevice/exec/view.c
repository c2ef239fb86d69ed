/* The table of views. Numbers are dense and the lowest free one is taken, as with NVIDIA's driver; those of a
 * device may begin anew, from a place in the table. */
#include "view.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic(struct sim_view *) views[SIM_MOST_VIEWS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t first_free = 1;                 /* none below is free */
static _Atomic uint32_t count;                  /* of those that have a number */
static uint64_t withdrawals;                    /* so far */
static struct sim_view *first, **last = &first; /* withdrawn, and there may be launches that use them */
static struct sim_view_user *earliest, *latest;

uint32_t sim_view_publish(const struct sim_view *view, uint32_t base) {
    struct sim_view *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return 0;
    *copy = *view;
    pthread_mutex_lock(&lock);
    while (first_free < SIM_MOST_VIEWS && atomic_load(&views[first_free]) != NULL)
        first_free++;
    uint32_t place = first_free > base ? first_free : base + 1;
    while (place < SIM_MOST_VIEWS && atomic_load(&views[place]) != NULL)
        place++;
    uint32_t number = copy->number = place < SIM_MOST_VIEWS ? place : 0;
    if (number != 0) {
        atomic_store(&views[number], copy);
        atomic_fetch_add(&count, 1);
    }
    pthread_mutex_unlock(&lock);
    if (number == 0)
        free(copy);
    return number;
}

/* Under the lock: views go, and their numbers are free, that were withdrawn before all launches there are. */
static void sweep(void) {
    while (first != NULL && (earliest == NULL || earliest->since >= first->withdrawal)) {
        struct sim_view *view = first;
        first = view->next;
        if (first == NULL)
            last = &first;
        atomic_store(&views[view->number], NULL);
        atomic_fetch_sub(&count, 1);
        if (view->number < first_free)
            first_free = view->number;
        free(view);
    }
}

void sim_view_withdraw(uint32_t number) {
    pthread_mutex_lock(&lock);
    struct sim_view *view = atomic_load(&views[number]);
    view->withdrawal = ++withdrawals;
    view->next = NULL;
    *last = view;
    last = &view->next;
    sweep();
    pthread_mutex_unlock(&lock);
}

void sim_views_enter(struct sim_view_user *user) {
    user->listed = atomic_load(&count) != 0;
    if (!user->listed)
        return;
    pthread_mutex_lock(&lock);
    user->since = withdrawals;
    user->before = latest;
    user->next = NULL;
    *(latest != NULL ? &latest->next : &earliest) = user;
    latest = user;
    pthread_mutex_unlock(&lock);
}

void sim_views_leave(struct sim_view_user *user) {
    if (!user->listed)
        return;
    pthread_mutex_lock(&lock);
    *(user->before != NULL ? &user->before->next : &earliest) = user->next;
    *(user->next != NULL ? &user->next->before : &latest) = user->before;
    sweep();
    pthread_mutex_unlock(&lock);
}

const struct sim_view *sim_view_find(uint64_t number, enum sim_view_kind kind) {
    const struct sim_view *view = number < SIM_MOST_VIEWS ? atomic_load(&views[number]) : NULL;
    return view != NULL && view->kind == kind ? view : NULL;
}
