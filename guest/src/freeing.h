/* Before memory is freed, as all that the devices were given must be done by then in CUDA. */
#pragma once
#include "driver_interop/cuda_driver.h"

/* Functions of the program have run when this returns, and what kernels wrote where the program looks without
 * a call, or another process does, is there; for all else see freed.h. The failure of a wait that there was.
 */
CUresult gf_free_begins(CUdevice device);
/* The same for memory that all devices reach: it is waited for in any case. */
CUresult gf_free_shared_begins(void);
/* Before it changes who may use memory: the server's dispatcher waits for the devices then, and would not
 * hear that a function of the program, which one of them waits for, has returned. */
void gf_access_begins(void);
/* Until all contexts of a device have done what they were given; the first failure. */
CUresult gf_wait_for_device(CUdevice device);
