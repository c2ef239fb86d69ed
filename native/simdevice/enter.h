/* Whether this process may call the driver: kept apart from cuInit, which starts everything. */
#pragma once
#include "sim.h"

enum sim_state { SIM_STATE_NEW, SIM_STATE_READY, SIM_STATE_FORKED };

enum sim_state sim_state(void);
/* The thread that called sim_alone takes calls, and others wait until it called sim_not_alone. */
void sim_alone(void);
void sim_not_alone(void);
/* cuInit has succeeded. */
void sim_state_set_ready(void);
