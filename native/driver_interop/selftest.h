/* The answer to the self-test that NVIDIA's runtime makes of its driver before it runs
 * (cudaErrorSoftwareValidityNotEstablished). It is computed here because it covers the caller's process,
 * thread and table addresses; behind the guest stands a real driver. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "driver_interop/interop.h"

void gf_md2(const void *data, size_t size, uint8_t digest[16]);                             /* RFC 1319 */
void gf_hmac_md2(const uint8_t key[16], const void *data, size_t size, uint8_t digest[16]); /* RFC 2104 */

/* Addresses of the tables and the function as the runtime got them. */
CUresult gf_selftest(uint32_t version, uint64_t unix_seconds, const void *runtime_table,
                     const void *selftest_table, const void *function, uint64_t out[2]);
