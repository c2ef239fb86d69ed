#include "synchronized.h"
#include "wire/printed.h"

static void (*_Atomic follow)(void);

void sim_on_synchronized(void (*action)(void)) {
    atomic_store(&follow, action);
}

void sim_synchronized(void) {
    gf_printed_settle();
    void (*action)(void) = atomic_load(&follow);
    if (action)
        action();
}
