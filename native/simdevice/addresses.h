/* Where device memory lies in the process: all of it within one range, in which there is nothing else, with
 * nothing near it on either side. So one comparison tells an address of the device from one of the host, and
 * an offset of less than SIM_DEVICE_MARGIN on such an address leads to device memory or to a fault. The
 * compiler (ptx/emit/reach.py) knows the numbers too. */
#pragma once
#include <stdint.h>

#define SIM_DEVICE_BEGIN  UINT64_C(0x110000000000) /* above the sanitizers' shadow */
#define SIM_DEVICE_END    UINT64_C(0x400000000000) /* far below what the system places */
#define SIM_DEVICE_MARGIN (UINT64_C(1) << 40)

/* Within it: variables of modules (placement.c), conditional values of graphs (condition.c), the heap of
 * device code (exec/heap.c), all else (pages.c). */
#define SIM_VARIABLES_BEGIN  UINT64_C(0x110000000000)
#define SIM_VARIABLES_END    UINT64_C(0x190000000000)
#define SIM_CONDITIONS_BEGIN UINT64_C(0x190000000000)
#define SIM_CONDITIONS_END   UINT64_C(0x190010000000)
#define SIM_HEAP_BEGIN       UINT64_C(0x1a0000000000)
#define SIM_HEAP_END         UINT64_C(0x200000000000)
#define SIM_PAGES_BEGIN      UINT64_C(0x200000000000)
#define SIM_PAGES_END        UINT64_C(0x400000000000)
