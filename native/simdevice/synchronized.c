#include "synchronized.h"

static void (*_Atomic follow)(void);

void sim_on_synchronized(void (*action)(void)) {
    atomic_store(&follow, action);
}

void sim_synchronized(void) {
    void (*action)(void) = atomic_load(&follow);
    if (action)
        action();
}
