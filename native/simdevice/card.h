/* The card that the simulated device is like: the numbers in which cards of one compute capability differ. */
#pragma once
#include <stdint.h>

struct sim_card {
    uint32_t multiprocessors;
    uint32_t threads_per_multiprocessor, blocks_per_multiprocessor;
    uint32_t shared_per_block_optin, shared_per_multiprocessor; /* bytes */
    int clock_khz, memory_clock_khz, bus_bits;
    int l2_bytes, persisting_l2_bytes;
    int copy_engines;
    int single_to_double; /* ratio of throughputs */
};

const struct sim_card *sim_card(void);
uint32_t sim_multiprocessors(void); /* the card's, or an instance's part of them */
