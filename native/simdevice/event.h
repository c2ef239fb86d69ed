/* Events as graphs use them. */
#pragma once
#include "context.h"

CUresult sim_event_context(CUevent handle, struct sim_context **context);
/* Success, unless the event was recorded in a capture, which ends by this. */
CUresult sim_event_uncaptured(CUevent handle);
/* Whether a launch in the context may record it. */
CUresult sim_event_of_launch(CUevent handle, const struct sim_context *context);
/* What was recorded in a capture, behind a kernel: kernels wait for it by such an edge. */
void sim_event_set_edge(CUevent handle, CUgraphEdgeData edge);
/* As cuEventRecord and cuStreamWaitEvent do it in a stream that is not captured. */
CUresult sim_event_record_in(CUevent handle, struct sim_stream *stream);
CUresult sim_event_wait_in(CUevent handle, struct sim_stream *stream);
