/* Options of loading and linking, logs, and images from memory and files. */
#include "module.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_SIZE 4096

CUresult sim_jit_options(unsigned count, const CUjit_option *options, void **values,
                         struct sim_jit_log *log) {
    *log = (struct sim_jit_log){0};
    SIM_REQUIRE(count == 0 || (options && values));
    for (unsigned i = 0; i < count; i++) {
        SIM_REQUIRE((unsigned)options[i] < CU_JIT_NUM_OPTIONS);
        switch (options[i]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            log->error = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            log->error_size = (unsigned)(uintptr_t)values[i];
            log->error_size_value = &values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            log->info = values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            log->info_size = (unsigned)(uintptr_t)values[i];
            log->info_size_value = &values[i];
            break;
        case CU_JIT_WALL_TIME:
            log->wall_time_value = &values[i];
            break;
        default: /* the others tune a code generator that is not here */
            break;
        }
    }
    return CUDA_SUCCESS;
}

static void answer(char *buffer, size_t size, void **size_value, const char *text) {
    size_t length = 0;
    if (buffer && size) {
        length = strnlen(text, size - 1);
        memcpy(buffer, text, length);
        buffer[length] = '\0';
    }
    if (size_value)
        *size_value = (void *)(uintptr_t)length;
}

void sim_jit_report(const struct sim_jit_log *log, const char *message, uint64_t started_ns) {
    answer(log->error, log->error_size, log->error_size_value, message);
    answer(log->info, log->info_size, log->info_size_value, "");
    if (log->wall_time_value) {
        float milliseconds = (float)((double)(sim_now_ns() - started_ns) * 1e-6);
        memcpy(log->wall_time_value, &milliseconds, sizeof milliseconds);
    }
}

CUresult sim_image_load(const void *image, size_t size, const struct sim_jit_log *log,
                        struct sim_image **out) {
    char message[MESSAGE_SIZE] = "";
    const struct sim_config *config = sim_config_get();
    uint64_t started = sim_now_ns();
    CUresult result =
        sim_image_open(image, size, config->cc_major * 10 + config->cc_minor, message, sizeof message, out);
    if (result != CUDA_SUCCESS)
        sim_message(SIM_LOG_INFO, "image refused: %s", message);
    else
        sim_message(SIM_LOG_DEBUG, "image with %u kernels", sim_image_kernel_count(*out));
    sim_jit_report(log, message, started);
    return result;
}

CUresult sim_file_read(const char *path, void **data, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    char *content = NULL;
    size_t length = 0, capacity = 0, count;
    do {
        if (capacity < length + 65536) {
            capacity = (length + 65536) * 2;
            char *larger = realloc(content, capacity);
            if (!larger) {
                free(content);
                fclose(file);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            content = larger;
        }
        count = fread(content + length, 1, capacity - length - 1, file);
        length += count;
    } while (count);
    bool failed = ferror(file);
    fclose(file);
    if (failed) {
        free(content);
        return CUDA_ERROR_INVALID_SOURCE;
    }
    content[length] = '\0';
    *data = content;
    *size = length;
    return CUDA_SUCCESS;
}
