/* MD2 (RFC 1319) and HMAC (RFC 2104), only as large as the self-test needs. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "driver_interop/selftest.h"

#define BLOCK 16u

/* RFC 1319's permutation of 0…255, made from the digits of pi. */
static const uint8_t pi_table[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243,
    192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,
    103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142,
    187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,
    128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179,
    72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184, 56,  210, 150, 164, 125, 182,
    118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100, 113, 135, 32,  134, 91,  207, 101,
    230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,  97,  105, 52,  64,  126, 15,
    85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,  44,  83,  13,  110,
    133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193, 171, 250,
    36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,
    49,  68,  80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20,
};

struct md2 {
    uint8_t state[3 * BLOCK];
    uint8_t checksum[BLOCK];
    uint8_t pending[BLOCK];
    size_t pending_size;
};

static void md2_block(struct md2 *md2, const uint8_t block[BLOCK]) {
    uint8_t last = md2->checksum[BLOCK - 1];
    for (unsigned i = 0; i < BLOCK; i++) {
        last = md2->checksum[i] ^= pi_table[block[i] ^ last];
        md2->state[BLOCK + i] = block[i];
        md2->state[2 * BLOCK + i] = block[i] ^ md2->state[i];
    }
    uint8_t t = 0;
    for (unsigned round = 0; round < 18; round++) {
        for (unsigned i = 0; i < sizeof md2->state; i++)
            t = md2->state[i] ^= pi_table[t];
        t = (uint8_t)(t + round);
    }
}

static void md2_update(struct md2 *md2, const void *data, size_t size) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        md2->pending[md2->pending_size++] = bytes[i];
        if (md2->pending_size == BLOCK) {
            md2_block(md2, md2->pending);
            md2->pending_size = 0;
        }
    }
}

static void md2_finish(struct md2 *md2, uint8_t digest[BLOCK]) {
    uint8_t padding[BLOCK];
    size_t count = BLOCK - md2->pending_size;
    memset(padding, (int)count, count);
    md2_update(md2, padding, count);
    uint8_t checksum[BLOCK];
    memcpy(checksum, md2->checksum, BLOCK);
    md2_update(md2, checksum, BLOCK);
    memcpy(digest, md2->state, BLOCK);
}

void gf_md2(const void *data, size_t size, uint8_t digest[BLOCK]) {
    struct md2 md2 = {0};
    md2_update(&md2, data, size);
    md2_finish(&md2, digest);
}

static void hmac_begin(struct md2 *md2, const uint8_t key[BLOCK], uint8_t pad) {
    uint8_t block[BLOCK];
    for (unsigned i = 0; i < BLOCK; i++)
        block[i] = key[i] ^ pad;
    *md2 = (struct md2){0};
    md2_update(md2, block, BLOCK);
}

static void hmac_finish(struct md2 *inner, const uint8_t key[BLOCK], uint8_t digest[BLOCK]) {
    uint8_t first[BLOCK];
    md2_finish(inner, first);
    struct md2 outer;
    hmac_begin(&outer, key, 0x5c);
    md2_update(&outer, first, BLOCK);
    md2_finish(&outer, digest);
}

void gf_hmac_md2(const uint8_t key[BLOCK], const void *data, size_t size, uint8_t digest[BLOCK]) {
    struct md2 md2;
    hmac_begin(&md2, key, 0x36);
    md2_update(&md2, data, size);
    hmac_finish(&md2, key, digest);
}

CUresult gf_selftest(uint32_t version, uint64_t unix_seconds, const void *runtime_table,
                     const void *selftest_table, const void *function, uint64_t out[2]) {
    static const uint8_t key[BLOCK] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                       0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (version % 10 < 2) {
        out[0] = version % 10 ? 0x1841181c03cb675cu : 0x3341181c03cb675cu;
        out[1] = 0x8ed383aa1f4cd1e8u;
        return CUDA_SUCCESS;
    }
    struct {
        uint32_t driver_version;
        uint32_t version;
        uint32_t process;
        uint32_t thread;
        uint64_t addresses[3];
        uint64_t unix_seconds;
    } caller = {
        .driver_version = (uint32_t)gf_interop_driver.driver_version(),
        .version = version,
        .process = (uint32_t)getpid(),
        .thread = (uint32_t)(uintptr_t)pthread_self(),
        .addresses = {(uintptr_t)runtime_table, (uintptr_t)selftest_table, (uintptr_t)function},
        .unix_seconds = unix_seconds,
    };
    struct md2 md2;
    hmac_begin(&md2, key, 0x36);
    md2_update(&md2, &caller, sizeof caller);
    int count = gf_interop_driver.device_count();
    for (int i = 0; i < count; i++) {
        struct gf_interop_device device;
        CUresult result = gf_interop_driver.device(i, &device);
        if (result != CUDA_SUCCESS)
            return result;
        md2_update(&md2, &device, sizeof device);
    }
    uint8_t digest[BLOCK];
    hmac_finish(&md2, key, digest);
    memcpy(out, digest, sizeof digest);
    return CUDA_SUCCESS;
}
