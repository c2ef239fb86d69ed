// What programs with conditional nodes share: a kernel that sets a condition, and nodes that use it.
#ifndef CONDITIONAL_H
#define CONDITIONAL_H

#include "driver.h"

// set: the condition becomes *from, which it counts down. What nvcc makes of cudaGraphSetConditional.
static const char count_down_ptx[] =
    ".version 8.3\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    ".visible .entry set(.param .u64 handle, .param .u64 from)\n"
    "{\n"
    "    .reg .b32 %r<3>;\n"
    "    .reg .b64 %d<3>;\n"
    "    ld.param.u64 %d1, [handle];\n"
    "    ld.param.u64 %d2, [from];\n"
    "    ld.global.u32 %r1, [%d2];\n"
    "    sub.u32 %r2, %r1, 1;\n"
    "    st.global.u32 [%d2], %r2;\n"
    "    { .param .b64 p0; st.param.b64 [p0], %d1; .param .b32 p1; st.param.b32 [p1], %r1;\n"
    "      call.uni cudaGraphSetConditional, (p0, p1); }\n"
    "    ret;\n"
    "}\n";

static inline CUfunction set_kernel(void) {
    CUmodule own;
    CUfunction set;
    QUIET(cuModuleLoadData(&own, count_down_ptx));
    QUIET(cuModuleGetFunction(&set, own, "set"));
    return set;
}

static inline CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function,
                                     void **arguments) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                .kernel = {function, 1, 1, 1, 1, 1, 1, 0, arguments, NULL, NULL, NULL}};
    CUgraphNode node = NULL;
    QUIET(cuGraphAddNode(&node, graph, &after, NULL, after ? 1 : 0, &params));
    return node;
}

static inline CUgraphConditionalHandle add_condition(CUgraph graph, unsigned start) {
    CUgraphConditionalHandle handle = 0;
    QUIET(cuGraphConditionalHandleCreate(&handle, graph, context, start, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
}

// Its bodies; *node is the node.
static inline CUgraph *add_conditional(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                                       CUgraphConditionalNodeType type, unsigned size, CUgraphNode *node) {
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = handle, .type = type, .size = size, .ctx = context}};
    QUIET(cuGraphAddNode(node, graph, &after, NULL, after ? 1 : 0, &params));
    return params.conditional.phGraph_out;
}

#endif
