#include "channel_state.h"

#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "session.h"
#include "wire/uncancelled.h"

struct gf_channel gf_channel = {
    .transport.fd = -1,
    .wake_fd = -1,
    .send_lock = PTHREAD_MUTEX_INITIALIZER,
    .reply_lock = PTHREAD_MUTEX_INITIALIZER,
    .next_request = 1,
    .closes_at = UINT64_MAX,
};

#define ch gf_channel

bool gf_channel_lost(void) {
    return atomic_load_explicit(&ch.lost, memory_order_acquire);
}

void gf_channel_lose(const char *why) {
    if (atomic_exchange(&ch.lost, true)) {
        return;
    }
    gf_session_lost();
    if (why != NULL && !atomic_load(&ch.leaving)) {
        gf_error("lost the GPU server: %s. Every CUDA call fails from here on; restart the program, and see "
                 "`gpuferry status` if it happens again.",
                 why);
    }
    shutdown(ch.transport.fd, SHUT_RDWR);
    gf_channel_wake();
    pthread_mutex_lock(&ch.send_lock);
    pthread_cond_broadcast(&ch.sent);
    pthread_mutex_unlock(&ch.send_lock);
    pthread_mutex_lock(&ch.reply_lock);
    gf_news_tell(&ch.replied);
    pthread_mutex_unlock(&ch.reply_lock);
}

bool gf_channel_is_closed(void) {
    return (ch.resumable ? ch.acknowledged : ch.tail) >= ch.closes_at;
}

void gf_channel_wake(void) {
    GF_UNCANCELLED;
    uint64_t one = 1;
    if (write(ch.wake_fd, &one, sizeof one) < 0) {
        /* the counter is full: it will wake */
    }
}
