#include "green.h"
#include "card.h"
#include "thread.h"

static _Atomic(struct sim_green *) all;

void sim_green_keep(struct sim_green *green) {
    green->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &green->next, green))
        ;
}

bool sim_green_end(struct sim_green *green) {
    if (atomic_exchange(&green->gone, true))
        return false;
    sim_handle_close(green->object.handle, SIM_GREEN);
    sim_handle_close(green->name->object.handle, SIM_CONTEXT);
    return true;
}

void sim_greens_forget_context(const struct sim_context *primary) {
    for (struct sim_green *green = atomic_load(&all); green; green = green->next)
        if (green->primary == primary)
            sim_green_end(green);
}

unsigned sim_green_multiprocessors(const struct sim_stream *stream) {
    const struct sim_green *green = stream->green ? stream->green : sim_thread_green();
    return green ? green->multiprocessors : sim_multiprocessors();
}
