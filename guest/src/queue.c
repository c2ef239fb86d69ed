#include "queue.h"

#include <stdlib.h>
#include <time.h>

#include "driver_interop/asked.h"
#include "log.h"
#include "stats.h"

#define SECOND        UINT64_C(1000000000)
#define COMES_BACK    (60 * SECOND) /* how long a monitor may take for that */
#define BETWEEN_LOOKS (SECOND / 10)
#define FIRST_PAUSE   (SECOND / 50) /* at the door; each is twice as long as the one before */
#define DROPPED_MOST  4

void gf_queue_begin(struct gf_queue *queue) {
    const char *text = getenv("GPUFERRY_MAX_WAIT");
    double seconds = text != NULL ? gf_asked_number(text, NULL) : 0;
    *queue = (struct gf_queue){.began = gf_now()};
    if (seconds > 0 && seconds < UINT32_MAX) {
        queue->allowed = (uint64_t)(seconds * (double)SECOND) + 1;
    }
}

void gf_queue_joined(struct gf_queue *queue, uint32_t position, uint32_t length) {
    if (!queue->joined || queue->broken_at != 0) {
        gf_info("waiting for a GPU: place %u of %u in the queue", position, length);
    }
    queue->joined = true;
    queue->broken_at = 0;
}

bool gf_queue_broke(struct gf_queue *queue) {
    queue->broken = queue->joined;
    return queue->broken;
}

bool gf_queue_dropped(struct gf_queue *queue) {
    queue->broken = queue->joined || queue->dropped < DROPPED_MOST;
    return queue->broken;
}

static void pause_for(uint64_t nanoseconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)nanoseconds}, NULL);
}

bool gf_queue_again(struct gf_queue *queue) {
    uint64_t now = gf_now();
    queue->broken = false;
    if (!queue->joined) {
        gf_info("the monitor hung up before it had heard this program; connecting again");
        pause_for(FIRST_PAUSE << queue->dropped++);
        return true;
    }
    if (queue->broken_at == 0) {
        gf_info("the monitor is gone, and with it the place in its queue; connecting again");
        queue->broken_at = now;
    }
    uint64_t until = queue->allowed != 0 ? queue->began + queue->allowed : queue->broken_at + COMES_BACK;
    if (now >= until) {
        return false;
    }
    pause_for(until - now < BETWEEN_LOOKS ? until - now : BETWEEN_LOOKS);
    return true;
}

double gf_queue_spent(const struct gf_queue *queue) {
    return queue->joined ? (double)(gf_now() - queue->began) / (double)SECOND : 0;
}
