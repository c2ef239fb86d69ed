#include "thread.h"
#include "capture.h"
#include "green.h"
#include <pthread.h>
#include <stdlib.h>

struct thread_stream {
    struct thread_stream *next;
    struct sim_stream *stream;
};

struct thread_state {
    struct sim_context **stack;
    size_t depth, capacity;
    struct thread_stream *streams;
};

static __thread struct thread_state state;
static __thread bool registered;
static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void clean_up(void *unused) {
    (void)unused;
    while (state.streams) {
        struct thread_stream *entry = state.streams;
        state.streams = entry->next;
        if (sim_handle_close(entry->stream->object.handle, SIM_STREAM)) {
            sim_capture_forget(entry->stream);
            sim_release(entry->stream);
        }
        free(entry);
    }
    free(state.stack);
    state = (struct thread_state){0};
    registered = false;
}

static void make_key(void) {
    pthread_key_create(&exit_key, clean_up);
}

static void register_clean_up(void) {
    if (registered)
        return;
    pthread_once(&once, make_key);
    registered = pthread_setspecific(exit_key, &state) == 0;
}

struct sim_context *sim_thread_top(void) {
    return state.depth ? state.stack[state.depth - 1] : NULL;
}

struct sim_green *sim_thread_green(void) {
    struct sim_context *top = sim_thread_top();
    return top ? top->green : NULL;
}

struct sim_context *sim_thread_current(void) {
    struct sim_context *top = sim_thread_top();
    return top && top->green ? top->green->primary : top;
}

bool sim_thread_push(struct sim_context *context) {
    register_clean_up();
    if (state.depth == state.capacity) {
        size_t capacity = state.capacity ? state.capacity * 2 : 4;
        struct sim_context **stack = realloc(state.stack, capacity * sizeof *stack);
        if (!stack)
            return false;
        state.stack = stack;
        state.capacity = capacity;
    }
    state.stack[state.depth++] = context;
    return true;
}

struct sim_context *sim_thread_pop(void) {
    return state.depth ? state.stack[--state.depth] : NULL;
}

bool sim_thread_set_current(struct sim_context *context) {
    if (!context) {
        sim_thread_pop();
        return true;
    }
    if (!state.depth)
        return sim_thread_push(context);
    state.stack[state.depth - 1] = context;
    return true;
}

struct sim_stream *sim_thread_stream(const struct sim_context *context) {
    for (struct thread_stream *entry = state.streams; entry; entry = entry->next)
        if (entry->stream->context == context && entry->stream->green == sim_thread_green())
            return entry->stream;
    return NULL;
}

bool sim_thread_keep_stream(struct sim_stream *stream) {
    register_clean_up();
    struct thread_stream *entry = malloc(sizeof *entry);
    if (!entry)
        return false;
    *entry = (struct thread_stream){state.streams, stream};
    state.streams = entry;
    return true;
}
