#include "driver_interop/loading.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE  65536
#define BEHIND 8 /* zeroes */

CUresult gf_jit_options(unsigned count, const CUjit_option *options, void **values, struct gf_jit_log *log) {
    *log = (struct gf_jit_log){0};
    if (count > 0 && (options == NULL || values == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)options[i] >= CU_JIT_NUM_OPTIONS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        switch (options[i]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            log->error = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            log->error_size = (unsigned)(uintptr_t)values[i];
            log->error_used = &values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            log->info = values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            log->info_size = (unsigned)(uintptr_t)values[i];
            log->info_used = &values[i];
            break;
        case CU_JIT_WALL_TIME:
            log->wall_time = &values[i];
            break;
        default:
            break;
        }
    }
    return CUDA_SUCCESS;
}

CUresult gf_jit_input_options(unsigned count, const CUjit_option *options, void **values) {
    struct gf_jit_log log;
    CUresult result = gf_jit_options(count, options, values, &log);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_TARGET || options[i] == CU_JIT_TARGET_FROM_CUCONTEXT) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return log.error != NULL || log.info != NULL || log.wall_time != NULL ? CUDA_ERROR_INVALID_VALUE
                                                                          : CUDA_SUCCESS;
}

static void append(char *buffer, size_t room, size_t *length, void **used, const char *text, size_t size) {
    if (buffer != NULL && room > 0) {
        size_t left = room - 1 - *length, count = size < left ? size : left;
        memcpy(buffer + *length, text, count);
        *length += count;
        buffer[*length] = '\0';
    }
    if (used != NULL) {
        *used = (void *)(uintptr_t)*length;
    }
}

void gf_jit_append(struct gf_jit_log *log, const char *error, size_t error_size, const char *info,
                   size_t info_size, float milliseconds) {
    append(log->error, log->error_size, &log->error_length, log->error_used, error, error_size);
    append(log->info, log->info_size, &log->info_length, log->info_used, info, info_size);
    log->milliseconds += milliseconds;
    if (log->wall_time != NULL) {
        memcpy(log->wall_time, &log->milliseconds, sizeof log->milliseconds);
    }
}

void gf_jit_answer(const struct gf_jit_log *log, const char *text, size_t size, float milliseconds) {
    struct gf_jit_log once = *log;
    gf_jit_append(&once, text, size, "", 0, milliseconds);
}

CUresult gf_file_read(const char *path, void **data, size_t *size) {
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    char *content = NULL;
    size_t length = 0, capacity = 0, count;
    do {
        if (capacity < length + PIECE + BEHIND) {
            capacity = 2 * (length + PIECE + BEHIND);
            char *larger = realloc(content, capacity);
            if (larger == NULL) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
                break;
            }
            content = larger;
        }
        count = fread(content + length, 1, PIECE, file);
        length += count;
    } while (count > 0);
    if (result == CUDA_SUCCESS && ferror(file)) {
        result = CUDA_ERROR_INVALID_SOURCE;
    }
    fclose(file);
    if (result != CUDA_SUCCESS) {
        free(content);
        return result;
    }
    memset(content + length, 0, BEHIND);
    *data = content;
    *size = length;
    return CUDA_SUCCESS;
}
