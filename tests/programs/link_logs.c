// The logs of a link: written by each call, added up until the link is destroyed, terminated within the
// buffer, and as long as the size option says afterwards. Wall time is a float in the option's own word.
#include "link.h"

static size_t said(const struct logs *logs) {
    return (size_t)logs->values[LOG_ERROR_SIZE];
}

int main(void) {
    struct logs logs;
    CUlinkState state;
    CUmodule loaded;
    void *image;
    size_t size;
    float before, after;
    start();

    prepare(&logs);
    logs.error[0] = logs.info[0] = 'x';
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    OK(ADD_PTX(state, caller_ptx, "caller"));
    EXPECT(said(&logs) == 0 && logs.error[0] == '\0');
    EXPECT(logs.info[0] == '\0' || (size_t)logs.values[LOG_INFO_SIZE] == strlen(logs.info));
    memcpy(&before, &logs.values[LOG_WALL_TIME], sizeof before);
    FAILS(CUDA_ERROR_INVALID_PTX, ADD_PTX(state, broken_ptx, "broken"));
    size_t first = said(&logs);
    EXPECT(first > 0 && first == strlen(logs.error));
    EXPECT(logs.error[first - 1] != '\n'); // what cuda-core's tests compare with has no end of line
    FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete(state, &image, &size));
    EXPECT(said(&logs) > first && said(&logs) == strlen(logs.error));
    EXPECT(strstr(logs.error + first, "shared_word") != NULL);
    memcpy(&after, &logs.values[LOG_WALL_TIME], sizeof after);
    EXPECT(before >= 0 && after > before);
    OK(cuLinkDestroy(state));

    prepare(&logs);
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    OK(ADD_PTX(state, caller_ptx, "caller"));
    FAILS(CUDA_ERROR_INVALID_PTX, ADD_PTX(state, broken_ptx, "broken"));
    OK(ADD_PTX(state, function_ptx, "function"));
    OK(ADD_PTX(state, variable_ptx, "variable"));
    first = said(&logs);
    OK(cuLinkComplete(state, &image, &size));
    EXPECT(said(&logs) == first);
    OK(cuModuleLoadData(&loaded, image));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(state));
    overflow(&logs);
    return check_failed;
}
