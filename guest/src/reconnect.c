#include "channel_state.h"

#include <sys/socket.h>

#include "guest.h"
#include "resume.h"
#include "session.h"

#define ch gf_channel

/* Nobody else waits for another connection any more. */
static bool given_up(void) {
    pthread_mutex_lock(&ch.send_lock);
    bool closing = ch.closing;
    pthread_mutex_unlock(&ch.send_lock);
    return closing || gf_channel_lost();
}

/* The connection ended. Without counts of bytes there is only one way to go on: both sides had said
 * that they had said everything there, and the session is elsewhere. */
static bool may_go_on(void) {
    pthread_mutex_lock(&ch.send_lock);
    bool followed = ch.told_all && !ch.within && !gf_reader_has_input();
    pthread_mutex_unlock(&ch.send_lock);
    return (ch.resumable || followed) && !gf_channel_lost();
}

bool gf_channel_resume(void) {
    if (!may_go_on()) {
        return false;
    }
    pthread_mutex_lock(&ch.send_lock);
    if (gf_channel_is_closed()) {
        pthread_mutex_unlock(&ch.send_lock);
        return false;
    }
    ch.resuming = true;
    shutdown(ch.transport.fd, SHUT_RDWR); /* a writer gets an error, and leaves */
    while (ch.writing && !pthread_equal(ch.writer, pthread_self())) {
        pthread_cond_wait(&ch.sent, &ch.send_lock);
    }
    pthread_mutex_unlock(&ch.send_lock);

    if (!ch.within) {
        /* The beginning of a header comes again: it may have been that of MOVED, which does not count. */
        ch.received -= ch.resumable ? ch.input_end - ch.input_start : 0;
        ch.input_start = ch.input_end = 0;
    }
    char why[512];
    uint64_t theirs;
    struct gf_transport next;
    if (!gf_resume_connect(&next, ch.received, &theirs, given_up, why, sizeof why)) {
        gf_channel_lose(why);
        return false;
    }
    pthread_mutex_lock(&ch.send_lock);
    bool fine = ch.resumable ? theirs >= ch.acknowledged && theirs <= ch.head : theirs == 0;
    fine = fine && gf_transport_replace(&ch.transport, &next);
    if (fine) {
        if (ch.resumable) {
            ch.tail = ch.acknowledged = theirs;
        }
        ch.resuming = false;
        ch.moving = GF_HERE;
        ch.told_all = false;
        atomic_fetch_add(&ch.connection, 1);
        pthread_cond_broadcast(&ch.sent);
    }
    pthread_mutex_unlock(&ch.send_lock);
    gf_transport_close(&next);
    if (!fine) {
        gf_channel_lose("it did not get what it says it got, or no descriptor is left");
    }
    gf_channel_wake();
    return fine;
}
