/* The execution engine's interface to the driver part of the simulated device: images, kernels, grids.
 * Thread-safe. */
#pragma once
#include "view.h"
#include "cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_image; /* one module image: selected, decompressed, parsed; reference-counted, shared by content
                     hash */
struct sim_context;
struct sim_kernel; /* one compiled kernel of an image */

struct sim_param_info {
    uint32_t offset, size;
};

struct sim_kernel_info {
    const char *name;
    const struct sim_param_info *params;
    uint32_t param_count, param_bytes;
    uint32_t shared_static, local_bytes, const_bytes, registers;
    uint32_t max_threads;                 /* .maxntid, or the device's if it is less */
    uint32_t required[3];                 /* .reqntid, 0 if none */
    uint32_t cluster[3];                  /* .reqnctapercluster, 0 if none */
    uint32_t most_cluster;                /* .maxclusterrank: blocks of a cluster, 0 if none */
    uint32_t explicit_cluster;            /* .explicitcluster */
    uint64_t handle;                      /* its address in device code; 0: none */
    uint32_t ptx_version, binary_version; /* 80 for sm_80 */
};

static inline bool sim_block_as_required(const struct sim_kernel_info *info, uint32_t x, uint32_t y,
                                         uint32_t z) {
    const uint32_t *required = info->required;
    return required[0] == 0 || (x == required[0] && y == required[1] && z == required[2]);
}

struct sim_variable_info {
    const char *name;
    uint64_t size, align;
    const void *initial; /* `size` bytes, or NULL for zero */
    /* places in `initial` that hold bytes of the address of another variable, from the `first` on */
    const struct sim_relocation {
        uint64_t offset;
        int64_t addend;
        uint32_t variable;
        uint16_t first, count;
    } *relocations;
    uint32_t relocation_count;
    int is_const, is_managed;
    enum sim_view_kind reference; /* a .texref or a .surfref; 0: neither */
};

/* `image` is a fatbin wrapper, a fatbin container, PTX text, a blob made by cuLinkComplete, or a cubin where
 * code is skipped; size 0: derive it. `cc` is 80 for compute capability 8.0. Errors:
 * CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU (SASS only), _INVALID_PTX, _UNSUPPORTED_PTX_VERSION,
 * _JIT_COMPILER_NOT_FOUND. On error `log` (if not NULL) receives a message, at most log_size bytes. */
CUresult sim_image_open(const void *image, size_t size, int cc, char *log, size_t log_size,
                        struct sim_image **out);
void sim_image_close(struct sim_image *image);
/* 32 bytes, a hash of the image's own bytes: the same in every process. */
const uint8_t *sim_image_content(const struct sim_image *image);
uint32_t sim_image_kernel_count(const struct sim_image *image);
const struct sim_kernel_info *sim_image_kernel(const struct sim_image *image, uint32_t index);
uint32_t sim_image_variable_count(const struct sim_image *image);
const struct sim_variable_info *sim_image_variable(const struct sim_image *image, uint32_t index);

/* Compiles on first use (disk cache first). CUDA_ERROR_INVALID_PTX for an instruction that is not known:
 * logged with name and line. */
CUresult sim_kernel_prepare(struct sim_image *image, uint32_t index, struct sim_kernel **out);

/* What a kernel finds in a reference: in the variable's place, nothing, or a view that lives as long as the
 * grid. */
struct sim_bound {
    uint64_t variable;
    const struct sim_view *view;
};

/* What of a context its kernels have used, by bit. */
enum { SIM_USED_OUTPUT = 1, SIM_USED_HEAP = 2 };

struct sim_grid {
    struct sim_kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t cluster[3];       /* blocks of a cluster, which divide the grid */
    uint32_t explicit_cluster; /* somebody asked for clusters */
    uint32_t shared_dynamic;
    const void *params; /* param_bytes bytes */
    uint8_t *const *globals;
    uint32_t multiprocessors;
    const struct sim_bound *bound;
    uint32_t bound_count;
    uint32_t views;                 /* where in the table of views its device's numbers begin */
    size_t stack_limit, heap_limit; /* bytes: of a thread, of all that kernels take from the heap */
    _Atomic uint32_t *used;         /* the context's */
    uint64_t first;                 /* the cluster that starts first; they follow each other, */
    uint32_t backwards;             /* forwards or backwards */
    uint32_t cooperative; /* its blocks wait for each other: all of them are made resident at once */
    uint64_t resident;    /* how many blocks the device holds at once */
    struct sim_context *context;
    /* What device code asks (device_runtime.py names it), of that kernel or none. Less than 0: a cudaError_t.
     */
    int64_t (*asked)(struct sim_context *context, const struct sim_kernel_info *info, uint32_t what,
                     uint64_t of, uint64_t more, uint64_t most);
};
/* Runs the whole grid on the engine's threads and returns when it has ended: CUDA_SUCCESS or the error that
 * ended it. */
CUresult sim_grid_run(const struct sim_grid *grid);
/* From here until `sim_faults_release` memory may be without access for a while: what faults waits, and is
 * done again. One thread at a time. */
void sim_faults_hold(void);
void sim_faults_release(void);
/* Has `touch` read and write memory, and holds nothing that it would have to give back; false: a stream had
 * freed device memory of it meanwhile. */
bool sim_faults_catch(void (*touch)(const void *), const void *what);
/* Nothing of what kernels left outside device memory is there any more: stacks, shared memory, the heap. Only
 * when no kernel runs. */
void sim_grids_forget(void);

/* How many bytes kernels may have printed into a file that nobody took out of it yet; what comes beyond is
 * lost, as on a device whose buffer is full. Before the first launch. */
void sim_output_limit(uint64_t bytes);
