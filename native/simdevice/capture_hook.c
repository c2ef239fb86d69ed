/* Where calls find out about captures: without one it costs a look at a pointer. */
#include "capture.h"
#include "graph.h"
#include "scheduler.h"
#include <stdlib.h>

static _Atomic(const struct sim_capture_rules *) in_effect;

static const struct sim_capture_rules *rules(void) {
    return atomic_load_explicit(&in_effect, memory_order_acquire);
}

void sim_capture_put_in_effect(const struct sim_capture_rules *now) {
    atomic_store_explicit(&in_effect, now, memory_order_release);
}

bool sim_capture_any(void) {
    return rules() != NULL;
}

bool sim_stream_captured(const struct sim_stream *stream) {
    return atomic_load_explicit(&stream->captured, memory_order_acquire) != NULL;
}

bool sim_capture_takes(struct sim_stream *stream, const struct sim_op *op, CUresult *result) {
    const struct sim_capture_rules *now = rules();
    return now && now->takes(stream, op, result);
}

bool sim_capture_takes_params(struct sim_stream *stream, CUgraphNodeParams *params, CUresult *result) {
    const struct sim_capture_rules *now = rules();
    return now && now->takes_params(stream, params, result);
}

CUresult sim_capture_check_stream(struct sim_stream *stream) {
    const struct sim_capture_rules *now = rules();
    return now ? now->check_stream(stream) : CUDA_SUCCESS;
}

CUresult sim_capture_check_context(struct sim_context *context, const struct sim_green *green) {
    const struct sim_capture_rules *now = rules();
    return now ? now->check_context(context, green) : CUDA_SUCCESS;
}

CUresult sim_capture_check_unsafe(void) {
    const struct sim_capture_rules *now = rules();
    return now ? now->check_unsafe() : CUDA_SUCCESS;
}

CUresult sim_capture_check_implicit(const struct sim_stream *stream) {
    const struct sim_capture_rules *now = rules();
    return now ? now->check_implicit(stream) : CUDA_SUCCESS;
}

bool sim_capture_record(struct sim_stream *stream, struct sim_capture_mark *mark, CUresult *result) {
    const struct sim_capture_rules *now = rules();
    return now && now->record(stream, mark, result);
}

bool sim_capture_wait(struct sim_stream *stream, const struct sim_capture_mark *mark, CUresult *result) {
    const struct sim_capture_rules *now = rules();
    if (now)
        return now->wait(stream, mark, result);
    *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* if it was recorded in a capture, that has ended */
    return mark->id != 0;
}

void sim_capture_set_edge(struct sim_capture_mark *mark, CUgraphEdgeData edge) {
    const struct sim_capture_rules *now = rules();
    if (now)
        now->set_edge(mark, edge);
}

void sim_capture_mark_drop(struct sim_capture_mark *mark) {
    free(mark->nodes);
    free(mark->edges);
    *mark = (struct sim_capture_mark){0};
}

void sim_capture_mark_clear(struct sim_capture_mark *mark) {
    if (mark->id == 0) /* as most often: others may just be looking */
        return;
    sim_graphs_lock();
    sim_capture_mark_drop(mark);
    sim_graphs_unlock();
}

void sim_capture_asked(const struct sim_capture_mark *mark) {
    const struct sim_capture_rules *now = rules();
    if (now)
        now->asked(mark);
}

void sim_capture_forget(struct sim_stream *stream) {
    const struct sim_capture_rules *now = rules();
    if (now)
        now->forget(stream);
}

void sim_capture_forget_context(struct sim_context *context) {
    const struct sim_capture_rules *now = rules();
    if (now)
        now->forget_context(context);
}
