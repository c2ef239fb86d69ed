/* Opening an image, and what the program is told of it. */
#include "module.h"
#include "config.h"
#include "context.h"
#include "enter.h"
#include "log.h"
#include "scheduler.h"
#include <string.h>

#define MESSAGE_SIZE 4096

void sim_jit_report(const struct gf_jit_log *log, const char *message, uint64_t started_ns) {
    float milliseconds = (float)((double)(sim_now_ns() - started_ns) * 1e-6);
    gf_jit_answer(log, message, strlen(message), milliseconds);
}

void sim_load_begin(void) {
    struct sim_context *context;
    if (!sim_config_get()->loads_wait)
        return;
    sim_alone();
    if (sim_context_current(&context) == CUDA_SUCCESS)
        sim_context_drain(context, NULL);
}

void sim_load_end(void) {
    if (sim_config_get()->loads_wait)
        sim_not_alone();
}

bool sim_image_eager(void) {
    return sim_config_get()->loading == CU_MODULE_EAGER_LOADING;
}

/* All kernels, ready to run. */
static CUresult prepare_all(struct sim_image *image) {
    struct sim_kernel *kernel;
    for (uint32_t i = 0; i < sim_image_kernel_count(image); i++)
        SIM_TRY(sim_kernel_prepare(image, i, &kernel));
    return CUDA_SUCCESS;
}

CUresult sim_image_load(const void *image, size_t size, const struct gf_jit_log *log,
                        struct sim_image **out) {
    char message[MESSAGE_SIZE] = "";
    const struct sim_config *config = sim_config_get();
    uint64_t started = sim_now_ns();
    CUresult result =
        sim_image_open(image, size, config->cc_major * 10 + config->cc_minor, message, sizeof message, out);
    if (result == CUDA_SUCCESS && sim_image_eager()) {
        result = prepare_all(*out);
        if (result != CUDA_SUCCESS)
            sim_image_close(*out);
    }
    if (result != CUDA_SUCCESS)
        sim_message(SIM_LOG_INFO, "image refused: %s", message);
    else
        sim_message(SIM_LOG_DEBUG, "image with %u kernels", sim_image_kernel_count(*out));
    sim_jit_report(log, message, started);
    return result;
}
