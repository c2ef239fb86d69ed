/* A hostile GPU server's frames, as the guest's channel reads them. */
#include "targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "channel_state.h"
#include "guest.h"
#include "resume.h"
#include "session.h"

#define CALLS 4

static struct fuzz_input input;
static bool lost;
static char memory[3][64];

struct gf_channel gf_channel;
_Thread_local struct gf_thread gf_thread;

static ssize_t receive(void *data, size_t size) {
    size_t part = size < input.left ? size : input.left;
    part = part > 977 ? 977 : part; /* what comes at once ends anywhere */
    return (ssize_t)fuzz_take_bytes(&input, data, part);
}

ssize_t fuzz_transport_receive(struct gf_transport *transport, void *data, size_t size) {
    return receive(data, size);
}

const char *fuzz_transport_reason(int error) {
    return strerror(error);
}

/* What kernels print. */
void fuzz_printed(FILE *to, const char *text, size_t size, bool may_write) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum = (uint8_t)(sum + (uint8_t)text[i]);
    }
}

bool gf_channel_resume(void) {
    return false;
}

void gf_channel_lose(const char *why) {
    lost = true;
    volatile size_t length = why != NULL ? strlen(why) : 0;
    (void)length;
}

bool gf_channel_lost(void) {
    return lost;
}

bool gf_channel_acknowledge(uint64_t received) {
    return true;
}

bool gf_channel_acknowledged(uint64_t received) {
    return received < 1 << 20;
}

void gf_channel_moved(void) {
}

void gf_channel_wake(void) {
}

uint32_t gf_context_wire_id(void) {
    return 1;
}

bool gf_session_sticky(uint32_t context_id, CUresult error) {
    return error == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void completed(struct gf_call *call) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < call->payload_size; i++) {
        sum = (uint8_t)(sum + ((uint8_t *)call->payload)[i]);
    }
    call->done = true;
}

/* Four calls wait: for nothing, a struct, rows, whatever comes. */
void fuzz_replies(const uint8_t *data, size_t size) {
    static char in[GF_INPUT_SIZE];
    char replies[CALLS][24];
    struct gf_call calls[CALLS] = {
        {.op = 1},
        {.op = 2, .reply = replies[1], .reply_size = 24},
        {.op = 3, .rows = {memory[0], 64, 16, 3}},
        {.op = 4, .reply = replies[3], .reply_size = 8, .completed = completed},
    };
    input = (struct fuzz_input){data, size};
    lost = false;
    memset(&gf_channel, 0, sizeof gf_channel);
    pthread_mutex_init(&gf_channel.reply_lock, NULL);
    pthread_mutex_init(&gf_channel.send_lock, NULL);
    gf_channel.input = in;
    gf_channel.resumable = fuzz_take(&input, 1) & 1;
    gf_channel.moving = gf_channel.resumable ? GF_HERE : GF_LEAVING;
    gf_channel.next_request = 1;
    for (int i = 0; i < CALLS; i++) {
        gf_reply_register(&calls[i]);
    }
    while (gf_reader_frame() && !lost && input.left + gf_channel.input_end - gf_channel.input_start > 0) {
    }
    for (int i = 0; i < CALLS; i++) {
        if (!calls[i].done) {
            calls[i].status = CUDA_ERROR_UNKNOWN;
        }
        free(calls[i].payload);
    }
    if (gf_channel.input_end > GF_INPUT_SIZE || gf_channel.input_start > gf_channel.input_end) {
        abort();
    }
}
