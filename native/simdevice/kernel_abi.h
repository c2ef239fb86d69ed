/* The contract between compiled kernels (relocatable x86-64 objects made from PTX by simdevice/ptx) and the
 * execution engine (simdevice/exec), which loads and runs them. Change SIM_KERNEL_ABI with any change here:
 * it is part of the disk cache's key. */
#pragma once
#include <stdint.h>

#define SIM_KERNEL_ABI 13

struct sim_block;

/* One thread of a running block. The compiler reads the fields; everything behind `block` belongs to the
 * engine. */
struct sim_thread {
    struct sim_block *block;
    uint32_t tid[3];
    uint32_t linear; /* tid.x + tid.y*ntid.x + tid.z*ntid.x*ntid.y; lane = linear % 32, warp = linear / 32 */
    /* Of a kernel whose addresses are checked: its local memory, and from where on it is free. */
    uint8_t *local, *local_top, *local_end;
};

/* One running block (CTA). */
struct sim_block {
    uint8_t *shared;         /* static shared memory first, then dynamic; 128-byte aligned */
    uint8_t *const *globals; /* address of each module variable, by its index in the module */
    const uint8_t *params;   /* packed kernel parameters, 16-byte aligned */
    uint32_t ctaid[3];
    uint32_t nctaid[3];
    uint32_t ntid[3];
    uint32_t shared_static;  /* bytes */
    uint32_t shared_dynamic; /* bytes */
    uint32_t smid, nsmid;
    uint64_t gridid;
    uint8_t *local, *local_end; /* of each of its threads in turn, where there are no fibers */
    /* Its cluster: where the shared memory of the first block is (the others' follows, SIM_CLUSTER_STRIDE
     * apart), how many blocks in each dimension, this one's rank, how many there are; 1: asked for. */
    uint8_t *window;
    uint32_t cluster[3];
    uint32_t cluster_rank, cluster_size, cluster_explicit;
    void *engine; /* the engine's own */
};

/* Bytes behind a block's shared memory, from a multiple of 16 on, that %reserved_smem_offset_* name. */
enum { SIM_SHARED_BEHIND = 1024 };

enum { SIM_CLUSTER_SHIFT = 18, SIM_CLUSTER_STRIDE = 1 << SIM_CLUSTER_SHIFT, SIM_CLUSTER_MOST = 16 };

enum { SIM_WARP_SIZE = 32 };

/* The threads of a running warp, of a kernel whose unit of execution is the warp. */
struct sim_lanes {
    struct sim_block *block;
    uint32_t live;              /* lanes that exist and have not exited: the kernel takes them away */
    uint32_t first;             /* `linear` of lane 0 */
    uint8_t *stack, *stack_end; /* what the warp runs on; the lanes' local variables lie there */
    /* Where addresses are checked: how much of each lane's local memory is in use, and how much there is. */
    uint64_t local_used, local_size;
    uint32_t tid[3][SIM_WARP_SIZE] __attribute__((aligned(64)));
    struct sim_thread lane[SIM_WARP_SIZE];
};

/* How the threads of a kernel are run. */
enum sim_kernel_form {
    SIM_FORM_LOOP,    /* no thread ever waits for another: sim_kernel_run_block runs a block, as a loop */
    SIM_FORM_THREADS, /* sim_kernel_run_thread runs one thread, on a fiber */
    SIM_FORM_WARPS,   /* sim_kernel_run_warp runs the threads of a warp in step, on a fiber */
};

/* Blocks that run in warps whatever the form says. */
enum sim_kernel_rows {
    SIM_ROWS_NONE,
    SIM_ROWS_ONLY,     /* those whose first dimension is a multiple of 32 */
    SIM_ROWS_OR_LINES, /* those, and those of one dimension */
};

/* A compiled object defines exactly these symbols, each a const uint32_t, and the function of its form, and
 * that of warps where sim_kernel_rows names blocks:
 * - sim_kernel_abi: SIM_KERNEL_ABI
 * - sim_kernel_form: an enum sim_kernel_form
 * - sim_kernel_rows: an enum sim_kernel_rows
 * - sim_kernel_quick: 1: made in little time, and slower than it could be
 * - sim_kernel_stack: bytes that its functions take of a stack, each once
 * - sim_kernel_local: bytes that they take of a lane's local memory, where addresses are checked
 *
 * Compiled with LLVM's large code model, static relocation: the loader needs R_X86_64_64 and PC-relative ones
 * inside the object.
 *
 * Address spaces: global, const, local, param and generic addresses are host addresses (cvta is the identity,
 * and so is a .local variable's address). A shared-space address is an offset from block->shared, 0 = first
 * byte of static shared memory, dynamic shared memory starts at shared_static rounded up to 16; cvta.shared
 * adds block->shared, cvta.to.shared subtracts it. The same numbers name other blocks' shared memory: those
 * of rank r begin at (r - own rank) * SIM_CLUSTER_STRIDE, which may be negative. */
typedef void sim_run_block_fn(struct sim_block *block);
typedef void sim_run_thread_fn(struct sim_thread *thread);
typedef void sim_run_warp_fn(struct sim_lanes *lanes);

/* Services that a compiled kernel calls, resolved by name when the object is loaded. All may switch fibers.
 * `site` is a constant that is unique per instruction of the kernel. A mask names lanes of the caller's warp;
 * exited lanes are ignored. In a kernel of warps `t` is any lane's: all its live lanes arrive at a barrier,
 * and the predicate is a mask; the operations of a warp are the kernel's own. */
void sim_rt_bar_sync(struct sim_thread *t, uint32_t barrier, uint32_t count /* 0: all live threads */);
void sim_rt_bar_arrive(struct sim_thread *t, uint32_t barrier, uint32_t count);
/* op: 0 popc, 1 and, 2 or; and/or return 0 or 1 */
uint32_t sim_rt_bar_red(struct sim_thread *t, uint32_t barrier, uint32_t count, uint32_t op,
                        uint32_t predicate);
/* barrier.cluster. In a kernel of warps `lanes` names those that arrive. */
void sim_rt_cluster_arrive(struct sim_thread *t, uint32_t lanes);
void sim_rt_cluster_wait(struct sim_thread *t);
void sim_rt_warp_sync(struct sim_thread *t, uint32_t mask);
uint32_t sim_rt_activemask(struct sim_thread *t, uint32_t site);
/* mode: 0 up, 1 down, 2 bfly, 3 idx. c as in PTX (clamp and segment mask). *in_range gets the predicate. */
uint32_t sim_rt_shfl(struct sim_thread *t, uint32_t mask, uint32_t mode, uint32_t a, uint32_t b, uint32_t c,
                     uint32_t *in_range);
/* mode: 0 all, 1 any, 2 uni, 3 ballot */
uint32_t sim_rt_vote(struct sim_thread *t, uint32_t mask, uint32_t mode, uint32_t predicate);
/* match.any (all=0) and match.all (all=1); *all_equal gets the predicate of match.all */
uint32_t sim_rt_match(struct sim_thread *t, uint32_t mask, uint64_t value, uint32_t all, uint32_t *all_equal);
/* op: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; is_signed for min and max */
uint32_t sim_rt_redux(struct sim_thread *t, uint32_t mask, uint32_t op, uint32_t is_signed, uint32_t value);
/* Each lane of `mask` gives `words` 32-bit words and receives all lanes' words, out[lane*words + i]: the
 * primitive for mma, ldmatrix and the like. */
enum { SIM_MOST_GATHERED = 24 }; /* words: A and B of m16n8k16 in doubles */
void sim_rt_warp_gather(struct sim_thread *t, uint32_t mask, const uint32_t *in, uint32_t words,
                        uint32_t *out);
void sim_rt_nanosleep(struct sim_thread *t, uint32_t ns);
/* A spin-wait hint: the engine may run other fibers. Emitted in loops that contain no other switch in fiber
 * kernels. */
void sim_rt_yield(struct sim_thread *t);

/* Of a kernel whose addresses are checked, for an address that is not obviously the device's or the thread's
 * own: ends the grid unless the kernel may use `size` bytes there. */
void sim_rt_reach(struct sim_thread *t, uint64_t address, uint32_t size, uint32_t writes);

/* Textures and surfaces. `handle` is what the program was given for one; what names none ends the grid. `how`
 * is made of a shape (1d, 2d, 3d, a1d, a2d, cube, acube) and the flags below. coordinates: the layer; x, y,
 * z; the level of detail, or the gradients in x (three words) and in y; from SIM_TEX_OFFSET on offsets in
 * texels; last what depths are compared with. */
enum {
    SIM_TEX_SHAPE = 7,
    SIM_TEX_INTEGER = 8, /* coordinates are numbers of texels */
    SIM_TEX_LEVEL = 16,  /* a level of detail is given */
    SIM_TEX_GRADIENT = 32,
    SIM_TEX_HALF = 64,     /* results are halves, in the low bits */
    SIM_TEX_COMPONENT = 8, /* shift: what is gathered */
    SIM_TEX_OFFSET = 10,   /* word of the first offset */
    SIM_TEX_WORDS = 13,
};
void sim_rt_tex(struct sim_thread *t, uint64_t handle, uint32_t how, const uint32_t *coordinates,
                uint32_t *texel);
void sim_rt_tld4(struct sim_thread *t, uint64_t handle, uint32_t how, const uint32_t *coordinates,
                 uint32_t *texel);
/* what: width, height, depth, channel data type, channel order, normalized, array size, levels, samples,
 * memory layout; plus 16 of a surface. */
uint32_t sim_rt_image_query(struct sim_thread *t, uint64_t handle, uint32_t what, uint32_t level);
/* `size` bytes at a place: the layer; x in bytes, y, z. mode: 0 trap, 1 clamp, 2 zero, beyond the edges. */
void sim_rt_suld(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t size,
                 void *value);
void sim_rt_sust(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t size,
                 const void *value);
/* The same with x in texels: four times 32 bits become a texel of the surface's format. */
void sim_rt_sust_p(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place,
                   const uint32_t *value);
/* op: 0 add, 1 min, 2 max, 3 and, 4 or; of 4 or 8 bytes. */
void sim_rt_sured(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t op,
                  uint32_t is_signed, uint32_t size, uint64_t value);
/* The same with x in texels, whose format says the sign. */
void sim_rt_sured_p(struct sim_thread *t, uint64_t handle, uint32_t mode, const uint32_t *place, uint32_t op,
                    uint32_t size, uint64_t value);

/* These do not return: they end the grid with the given CUDA error. */
void sim_rt_trap(struct sim_thread *t);                         /* CUDA_ERROR_LAUNCH_FAILED */
void sim_rt_overflow(struct sim_thread *t);                     /* the same: no local memory is left */
void sim_rt_misaligned(struct sim_thread *t, uint64_t address); /* CUDA_ERROR_MISALIGNED_ADDRESS */
void sim_rt_illegal(struct sim_thread *t,
                    uint64_t address); /* CUDA_ERROR_ILLEGAL_ADDRESS: shared or local out of range */
void sim_rt_assertfail(struct sim_thread *t, const char *message, const char *file, uint32_t line,
                       const char *function);
void sim_rt_exit(
    struct sim_thread *t); /* PTX exit from inside a called function; with a fiber for each thread only */

int32_t sim_rt_vprintf(struct sim_thread *t, const char *format, const void *arguments);
void *sim_rt_malloc(struct sim_thread *t, uint64_t size);
void *sim_rt_aligned_malloc(struct sim_thread *t, uint64_t size, uint64_t alignment);
void sim_rt_free(struct sim_thread *t, void *pointer);
/* Launches of kernels by kernels. The first gives room for the parameters of the kernel with that handle, or
 * NULL; the second launches it, and gives a cudaError_t; the third gives that of the grid's last launch that
 * failed, and forgets it if `clear`. */
void *sim_rt_launch_room(struct sim_thread *t, uint64_t handle, uint32_t grid_x, uint32_t grid_y,
                         uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                         uint32_t shared);
uint32_t sim_rt_launch(struct sim_thread *t, void *room, uint64_t stream);
uint32_t sim_rt_launch_error(struct sim_thread *t, uint32_t clear);
/* What device code asks: of its device, or of the kernel with the handle `of`. Less than 0: a cudaError_t,
 * negated. */
int64_t sim_rt_asked(struct sim_thread *t, uint32_t what, uint64_t of, uint64_t more, uint64_t most);
uint64_t sim_rt_clock64(struct sim_thread *t);
uint64_t sim_rt_globaltimer(struct sim_thread *t);
/* Where %envreg1 (high half) and %envreg2 (low half) point: the grid's own 64 bits for cooperative groups'
 * grid barrier. 0 where it was not launched cooperatively: there the group is not valid. */
uint64_t sim_rt_grid_workspace(struct sim_thread *t);
/* Barrier-free kernels pass a sim_thread made on the stack of sim_kernel_run_block to these services. Beside
 * them an object may refer to the libm and libc names listed in exec/externs.c (memcpy, memset, fmaf, …). */
