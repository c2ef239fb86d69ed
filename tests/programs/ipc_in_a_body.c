// The first IPC handle of memory that a kernel in the body of a conditional node is writing: no word is lost.
#include "conditional.h"

enum { WORDS = 4 << 20 };

// From the last to the first.
static const char fill_ptx[] = ".version 8.3\n"
                               ".target sm_80\n"
                               ".address_size 64\n"
                               ".visible .entry fill(.param .u64 words, .param .u64 begun)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .b64 %x<3>;\n"
                               "    ld.param.u64 %x0, [words];\n"
                               "    ld.param.u64 %x1, [begun];\n"
                               "    st.volatile.global.u32 [%x1], 1;\n"
                               "    add.u64 %x2, %x0, 16777216;\n"
                               "next:\n"
                               "    sub.u64 %x2, %x2, 4;\n"
                               "    st.volatile.global.u32 [%x2], 1;\n"
                               "    setp.ne.u64 %p, %x2, %x0;\n"
                               "    @%p bra next;\n"
                               "    ret;\n"
                               "}\n";

int main(void) {
    CUmodule own;
    CUfunction fill;
    CUstream at_work, asking;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUipcMemHandle handle;
    unsigned begun = 0, missing = 0;
    start();
    OK(cuModuleLoadData(&own, fill_ptx));
    OK(cuModuleGetFunction(&fill, own, "fill"));
    OK(cuStreamCreate(&at_work, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&asking, CU_STREAM_NON_BLOCKING));
    CUdeviceptr words = allocate(WORDS * 4), flag = allocate(4);
    OK(cuMemsetD32(words, 0, WORDS));
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuCtxSynchronize());

    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle condition = add_condition(graph, 1);
    CUgraph body = *add_conditional(graph, NULL, condition, CU_GRAPH_COND_TYPE_IF, 1, &node);
    add_kernel(body, NULL, fill, (void *[]){&words, &flag});
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, at_work));
    for (unsigned i = 0; !begun && i < 1000000; i++) {
        QUIET(cuMemcpyDtoHAsync(&begun, flag, 4, asking));
        QUIET(cuStreamSynchronize(asking));
    }
    OK(cuIpcGetMemHandle(&handle, words));
    OK(cuStreamSynchronize(at_work));

    unsigned *found = malloc(WORDS * 4);
    OK(cuMemcpyDtoH(found, words, WORDS * 4));
    for (unsigned i = 0; i < WORDS; i++)
        missing += found[i] != 1;
    EXPECT(missing == 0);
    free(found);
    return check_failed;
}
