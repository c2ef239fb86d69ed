/* Where the variables of modules lie: at addresses that follow from the image, so that the same loads give
 * the same addresses in every process. */
#pragma once
#include "execute.h"
#include "sim.h"

enum sim_placed {
    SIM_PLACED_MODULE,  /* the variables of a module */
    SIM_PLACED_LIBRARY, /* the managed variables of a library, which its modules share */
};

/* Zeroed pages for some of an image's variables. */
struct sim_place {
    struct sim_family *family; /* the places of the same content */
    enum sim_placed what;
    uint32_t instance; /* among them */
    bool retired;      /* its owner is gone, work that uses it is not */
    uint64_t base, size;
};

/* A place of the instance with the lowest number that is free; waits for one that is only retired. NULL: out
 * of memory. */
struct sim_place *sim_place_take(const struct sim_image *image, enum sim_placed what, uint64_t size);
/* The owner's handle has ended: whoever wants this place next waits until it is released. NULL is none. */
void sim_place_retire(struct sim_place *place);
void sim_place_release(struct sim_place *place);
