/* Device memory: addresses in the session's window, handed out here; physical memory behind them asked for
 * from the server. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "driver_interop/cuda_driver.h"

#include "gpuferry/frames.h"
#include "session.h"

struct gf_allocation {
    uint64_t address, size, owner, id;
    uint64_t pool;    /* handle; 0: it is of none */
    bool synchronous; /* operations on it do not return before they are done */
    bool imported;    /* another process's memory */
    bool open;        /* other processes have it too, or may */
};

/* Reserves the window's addresses in this process, once the session is known. False: no memory. */
bool gf_window_open(void);
/* pool: handle, or 0. stream: for stream-ordered memory, the wire id of its stream; 0: the whole session. */
CUresult gf_window_alloc(int device, uint64_t size, uint64_t owner, uint64_t pool, uint64_t stream,
                         uint64_t *address);
/* Of which the program has no address: none that it freed before is taken for it. */
CUresult gf_window_alloc_hidden(int device, uint64_t size, uint64_t owner, uint64_t *address);
CUresult gf_window_free(uint64_t address, uint64_t stream);
/* Frees memory that the program may free too, later: others get its address late. */
void gf_window_free_late(uint64_t address);
/* Hidden backing of its own for physical memory that is mapped elsewhere: no run of it reaches beyond it. */
CUresult gf_window_home(int device, uint64_t size, uint64_t *address);
/* Memory that begins and ends with a page of the host. */
CUresult gf_window_alloc_pages(int device, uint64_t size, uint64_t owner, uint64_t *address);
/* Addresses without anything behind them. */
CUresult gf_window_reserve(uint64_t size, uint64_t alignment, uint64_t *address);
CUresult gf_window_unreserve(uint64_t address, uint64_t size);
/* Whether all of a range is reserved by gf_window_reserve. */
bool gf_window_is_reserved(uint64_t address, uint64_t size);
/* The token by which other processes open an allocation that was made here. `id`: of the allocation, or it is
 * another one by now; 0: it is there for certain. */
CUresult gf_window_export(uint64_t address, uint64_t id, uint8_t token[GF_TOKEN_SIZE]);
/* Addresses for another process's memory; the allocation is `bytes` of it. */
CUresult gf_window_import(int device, uint64_t size, uint64_t offset, uint64_t bytes, uint64_t owner,
                          uint64_t *address);
/* They are not used any more. `mapped`: the memory is there, and goes. */
void gf_window_import_end(uint64_t address, bool mapped);
/* Frees all device memory that a context owns. */
void gf_window_free_context(uint64_t owner);
/* The program's allocation that holds an address; false: none does. */
bool gf_window_find(uint64_t address, struct gf_allocation *allocation);
/* Makes operations on the allocation that holds an address synchronous, or not; false: none does. */
bool gf_window_synchronous(uint64_t address, bool synchronous);
/* Whether a range is within the window at all: what tells a device pointer from a host pointer. */
static inline bool gf_window_contains(uint64_t address) {
    return address - gf_session.window_base < gf_session.window_size;
}
/* The same, and the program can have no other memory there, whatever it calls it. */
bool gf_window_owns(uint64_t address);
/* The program may read and write these pages from now on. False: they are not ours, or there is no memory. */
bool gf_window_touchable(uint64_t address, uint64_t size);
/* No longer: what was there is gone. */
void gf_window_untouchable(uint64_t address, uint64_t size);
/* Whose memory lies at an address of the window; of addresses that are only reserved, nobody's: the first
 * device. */
int gf_window_device(uint64_t address);
/* Bytes that the server has behind addresses of all devices, or elsewhere for them. */
uint64_t gf_window_held(void);
/* Bytes of the device's quota that are free, and all of it. */
CUresult gf_window_info(int device, uint64_t *free, uint64_t *total);

/* Returns when the other processes of a lease may claim what this one freed; `behind_work`: also what the
 * devices may be at work in, which only what waits for them in CUDA may wait for. The caller holds no lock.
 */
void gf_window_settle(bool behind_work);
/* A wait is over, with this result, which is returned: pools give back what they do not keep. */
CUresult gf_window_waited(CUresult result);

/* Gives the server back what no allocation of the device has. */
void gf_window_trim(int device);

/* Takes from the device's quota what lies elsewhere than in the window (arrays), and gives it back. False:
 * there is not so much. */
bool gf_window_charge(int device, uint64_t bytes);
void gf_window_refund(int device, uint64_t bytes);

/* From here on a stream may wait for what the program does (a value, a function, a word that a kernel reads):
 * memory that a stream freed is not taken while it may be in use, as long as there is other. */
void gf_window_stream_may_wait(void);

/* Counts device work, so that memory freed behind it is not reused before it is done. */
void gf_window_work_enqueued(void);
/* The same for a copy of memory that the program does not share with the device. */
void gf_window_copy_enqueued(void);
/* How much device work was enqueued so far. */
uint64_t gf_window_work(void);
/* Everything up to `work` is done. */
void gf_window_synchronized(uint64_t work);
