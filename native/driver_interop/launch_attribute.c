#include "launch_attribute.h"

bool gf_attribute_is_of_nodes(CUlaunchAttributeID id) {
    return (int)id != CU_LAUNCH_ATTRIBUTE_IGNORE && (int)id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
           (int)id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && !gf_attribute_records(id);
}

bool gf_attribute_records(CUlaunchAttributeID id) {
    return (int)id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
           (int)id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}
