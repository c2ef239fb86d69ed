// How every program of this folder reports: one line per call with the name of its result, one line per
// checked fact, and an exit status that is 0 only if everything was as CUDA promises. Lines never hold
// addresses, handles or times, so a native and a remote run of a right implementation print the same.
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_REPEATED = 5 };

static int check_failed;
static int check_repeated; // failures reported by the quiet macros, which stand in loops

static inline void check_result(const char *call, const char *got, const char *wanted) {
    printf("%s -> %s\n", call, got);
    if (wanted && strcmp(got, wanted) != 0) {
        printf("  FAILED: wanted %s\n", wanted);
        check_failed = 1;
    }
    fflush(stdout);
}

static inline void check_fact(const char *fact, int holds) {
    printf("%s: %s\n", holds ? "holds" : "FAILED", fact);
    fflush(stdout);
    if (!holds)
        check_failed = 1;
}

// A hash (64-bit FNV-1a over words) stands for data too long to print.
static inline uint64_t check_hash(const void *data, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)data + i, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    for (; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static inline void digest(const char *what, const void *data, size_t bytes) {
    printf("%s: %zu bytes, digest %016llx\n", what, bytes, (unsigned long long)check_hash(data, bytes));
    fflush(stdout);
}

#define EXPECT(condition) check_fact(#condition, (condition))

#ifdef __cuda_cuda_h__
static inline const char *check_name(CUresult result) {
    const char *name = "an unknown result";
    cuGetErrorName(result, &name);
    return name;
}

static inline CUresult check_quiet(const char *call, CUresult result) {
    if (result != CUDA_SUCCESS && check_repeated++ < CHECK_REPEATED)
        check_result(call, check_name(result), "CUDA_SUCCESS");
    return result;
}

// Succeeds; is whatever it is (compared between runs only); fails in this way; succeeds, reported only if
// not.
#define OK(call)           check_result(#call, check_name(call), "CUDA_SUCCESS")
#define CALL(call)         check_result(#call, check_name(call), NULL)
#define FAILS(error, call) check_result(#call, check_name(call), #error)
#define QUIET(call)        check_quiet(#call, (call))
#endif

#ifdef __CUDA_RUNTIME_API_H__
static inline cudaError_t check_quiet_runtime(const char *call, cudaError_t result) {
    if (result != cudaSuccess && check_repeated++ < CHECK_REPEATED)
        check_result(call, cudaGetErrorName(result), "cudaSuccess");
    return result;
}

#define RT_OK(call)           check_result(#call, cudaGetErrorName(call), "cudaSuccess")
#define RT_CALL(call)         check_result(#call, cudaGetErrorName(call), NULL)
#define RT_FAILS(error, call) check_result(#call, cudaGetErrorName(call), #error)
#define RT_QUIET(call)        check_quiet_runtime(#call, (call))
#endif

#endif
