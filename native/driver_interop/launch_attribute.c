#include "launch_attribute.h"

bool gf_attribute_is_of_nodes(CUlaunchAttributeID id) {
    return (int)id != CU_LAUNCH_ATTRIBUTE_IGNORE && (int)id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
           (int)id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && !gf_attribute_records(id);
}

bool gf_attribute_records(CUlaunchAttributeID id) {
    return (int)id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
           (int)id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

CUgraphEdgeData gf_attribute_edge(const CUlaunchAttribute *attribute) {
    bool at_end = (int)attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
                  attribute->value.programmaticEvent.triggerAtBlockStart == 0;
    return (CUgraphEdgeData){.from_port = at_end ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
                                                 : CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER,
                             .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}
