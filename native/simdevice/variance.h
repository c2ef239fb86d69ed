/* What CUDA leaves open, chosen by GPUFERRY_SIM_VARIANCE=SEED (design D22); without a seed, always the same.
 */
#pragma once
#include <stdint.h>

enum sim_open {
    SIM_OPEN_CARD,       /* which card's numbers the attributes are */
    SIM_OPEN_PEERS,      /* whether devices reach each other's memory */
    SIM_OPEN_CONTENT,    /* what new memory holds */
    SIM_OPEN_RESERVED,   /* how much of a device's memory the driver takes for itself */
    SIM_OPEN_PAGES,      /* where allocations lie */
    SIM_OPEN_VARIABLES,  /* where variables and code lie */
    SIM_OPEN_LOADING,    /* whether kernels are made when their image is loaded or when they are first used */
    SIM_OPEN_ASIDE,      /* from which size on a copy waits until a pageable source was read */
    SIM_OPEN_STREAM,     /* which of the streams that can go on does, priorities or not */
    SIM_OPEN_DELAY,      /* how long a stream's work takes to begin */
    SIM_OPEN_INLINE,     /* whether a waiting host thread does its own work */
    SIM_OPEN_BLOCKS,     /* in which order the blocks of a grid start */
    SIM_OPEN_CONDITIONS, /* whether a conditional value that was given up comes again */
    SIM_OPEN_OBJECTS,    /* whether each device numbers its textures and surfaces from 1 */
    SIM_OPEN_COUNT,
};

void sim_variance_set(uint64_t seed); /* 0: nothing varies */
/* A number below `choices` that is the same for the whole process, and for each with this seed. */
uint64_t sim_choice(enum sim_open what, uint64_t choices);
/* A number below `choices` that is another one at each call. */
uint64_t sim_draw(enum sim_open what, uint64_t choices);
