/* What loading an image is like for a program, whoever loads it: JIT options with their logs, and files. */
#pragma once
#include <stddef.h>

#include "driver_interop/cuda_driver.h"

/* Where the program wants messages, and the option values that get an answer. The options that tune a code
 * generator are the business of where one is. */
struct gf_jit_log {
    char *error, *info;
    size_t error_size, info_size;
    void **error_used, **info_used, **wall_time;
    size_t error_length, info_length; /* what gf_jit_append has written */
    float milliseconds;
};

CUresult gf_jit_options(unsigned count, const CUjit_option *options, void **values, struct gf_jit_log *log);
/* Answers after work that took so long and produced this text (which may be empty). */
void gf_jit_answer(const struct gf_jit_log *log, const char *text, size_t size, float milliseconds);
/* The same for one of several steps (cuLink*): texts and time are added to those of the steps before. */
void gf_jit_append(struct gf_jit_log *log, const char *error, size_t error_size, const char *info,
                   size_t info_size, float milliseconds);
/* Options for one input of a link: how it is compiled. Where messages go and what the link is for belongs to
 * the link. */
CUresult gf_jit_input_options(unsigned count, const CUjit_option *options, void **values);

/* The whole file, with zeroes behind it, so that a text ends and a short one can be looked into; to be freed.
 */
CUresult gf_file_read(const char *path, void **data, size_t *size);
