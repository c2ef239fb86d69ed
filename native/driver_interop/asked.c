#include "asked.h"

#include <stdlib.h>
#include <string.h>

bool gf_asked_launch_blocking(void) {
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text != NULL && strtol(text, NULL, 10) != 0;
}

CUmoduleLoadingMode gf_asked_loading(CUmoduleLoadingMode unasked) {
    const char *text = getenv("CUDA_MODULE_LOADING");
    return text == NULL                 ? unasked
           : strcmp(text, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
           : strcmp(text, "LAZY") == 0  ? CU_MODULE_LAZY_LOADING
                                        : unasked;
}
