/* Checks native/driver_interop from the outside, as NVIDIA's runtime uses it. Built and run by
 * test_interop.py against the generated stubs of the simulated device, so every symbol exists and nothing
 * else does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "driver_interop/context_storage.h"
#include "driver_interop/interop.h"
#include "driver_interop/selftest.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define GREEN ((CUcontext)0x77)

static CUcontext current;
static char logged[4096];
static const char *unsupported;

void sim_unsupported(const char *name) {
    unsupported = name;
}

static CUresult current_context(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult primary_context(CUdevice device, CUcontext *context) {
    *context = (CUcontext)(uintptr_t)(0x1000 + device);
    return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *module, const void *image) {
    *module = (CUmodule)image;
    return CUDA_SUCCESS;
}

static int device_count(void) {
    return 2;
}

static CUresult device(int ordinal, struct gf_interop_device *out) {
    *out = (struct gf_interop_device){.pci_domain = 1, .pci_bus = 2, .pci_device = ordinal};
    memset(out->uuid.bytes, 0x40 + ordinal, sizeof out->uuid.bytes);
    return CUDA_SUCCESS;
}

static bool is_green(CUcontext context) {
    return context == GREEN;
}

static int driver_version(void) {
    return 13050;
}

static void log_text(const char *text) {
    strcat(logged, text);
    strcat(logged, "\n");
}

const struct gf_interop_driver gf_interop_driver = {
    .current_context = current_context,
    .primary_context = primary_context,
    .is_green = is_green,
    .load_module = load_module,
    .device_count = device_count,
    .device = device,
    .driver_version = driver_version,
    .log = log_text,
};

static void hex(const uint8_t digest[16], char text[33]) {
    for (int i = 0; i < 16; i++)
        sprintf(text + 2 * i, "%02x", digest[i]);
}

/* RFC 1319, appendix A.5. */
static void test_md2(void) {
    static const char *const vectors[][2] = {
        {"", "8350e5a3e24c153df2275c9f80692773"},
        {"a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"},
        {"abc", "da853b0d3f88d99b30283a69e6ded6bb"},
        {"message digest", "ab4f496bfb2a530b219ff33031fe06b0"},
        {"abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "da33def2a42df13975352846c30338cd"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "d5976f79d83d3a0dc9806c3c66f3efd8"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint8_t digest[16];
        char text[33];
        gf_md2(vectors[i][0], strlen(vectors[i][0]), digest);
        hex(digest, text);
        CHECK(!strcmp(text, vectors[i][1]));
    }
}

/* RFC 2104, written out with the plain hash. */
static void test_hmac(void) {
    uint8_t key[16], message[16 + 5], outer[32], expected[16], digest[16];
    for (int i = 0; i < 16; i++) {
        key[i] = (uint8_t)(i * 11);
        message[i] = key[i] ^ 0x36;
        outer[i] = key[i] ^ 0x5c;
    }
    memcpy(message + 16, "hello", 5);
    gf_md2(message, sizeof message, outer + 16);
    gf_md2(outer, sizeof outer, expected);
    gf_hmac_md2(key, "hello", 5, digest);
    CHECK(!memcmp(digest, expected, sizeof digest));
}

static void *look_up(const char *name, int version, cuuint64_t flags, CUresult wanted, int wanted_status) {
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status = -1;
    CHECK(gf_get_proc_address(name, &function, version, flags, true, &status) == CUDA_SUCCESS);
    function = (void *)&function; /* the older one says it by its result */
    CHECK(gf_get_proc_address(name, &function, version, flags, false, NULL) == wanted);
    CHECK((int)status == wanted_status);
    CHECK((wanted == CUDA_SUCCESS) == (function != NULL));
    return function;
}

#define FINDS(name, version, flags, symbol)                                                                  \
    CHECK(look_up(name, version, flags, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS) == (void *)symbol)
#define LACKS(name, version, status) CHECK(!look_up(name, version, 0, CUDA_ERROR_NOT_FOUND, status))

static void test_lookup(void) {
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    FINDS("cuInit", 2000, 0, cuInit);
    FINDS("cuMemAlloc", 2000, 0, cuMemAlloc);
    FINDS("cuMemAlloc", 3020, 0, cuMemAlloc_v2);
    FINDS("cuMemAlloc", 13050, 0, cuMemAlloc_v2);
    FINDS("cuCtxSynchronize", 12999, 0, cuCtxSynchronize);
    FINDS("cuCtxSynchronize", 13000, 0, cuCtxSynchronize_v2);
    FINDS("cuCtxGetDevice", 13000, 0, cuCtxGetDevice_v2);
    FINDS("cuDeviceGetUuid", 9020, 0, cuDeviceGetUuid);
    FINDS("cuDeviceGetUuid", 11040, 0, cuDeviceGetUuid_v2);
    FINDS("cuStreamGetCaptureInfo", 10010, 0, cuStreamGetCaptureInfo);
    FINDS("cuStreamGetCaptureInfo", 11030, 0, cuStreamGetCaptureInfo_v2);
    FINDS("cuStreamGetCaptureInfo", 12030, 0, cuStreamGetCaptureInfo_v3);
    FINDS("cuStreamGetCaptureInfo", 12030, per_thread, cuStreamGetCaptureInfo_v3_ptsz);
    FINDS("cuGetProcAddress", 11030, 0, cuGetProcAddress);
    FINDS("cuGetProcAddress", 12000, 0, cuGetProcAddress_v2);
    FINDS("cuGraphInstantiate", 11040, 0, cuGraphInstantiate_v2);
    FINDS("cuGraphInstantiate", 12000, 0, cuGraphInstantiateWithFlags);
    FINDS("cuLaunchKernel", 7000, per_thread, cuLaunchKernel_ptsz);
    FINDS("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, cuLaunchKernel);
    FINDS("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_LEGACY_STREAM | per_thread, cuLaunchKernel_ptsz);
    FINDS("cuMemcpyHtoD", 13000, per_thread, cuMemcpyHtoD_v2_ptds);
    FINDS("cuMemAlloc", 13000, per_thread, cuMemAlloc_v2);
    LACKS("", 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    LACKS("cuNoSuchFunction", 13050, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    LACKS("cuMemAlloc_v2", 13050, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    LACKS("cuLibraryLoadData", 11080, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(gf_get_proc_address("", NULL, 0, 0, false, NULL) == CUDA_ERROR_NOT_FOUND);
    CHECK(gf_get_proc_address("cuInit", NULL, 2000, 0, false, NULL) == CUDA_ERROR_INVALID_VALUE);
    void *function;
    CHECK(gf_get_proc_address("cuInit", &function, 2000, 4, false, NULL) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gf_get_proc_address(NULL, &function, 2000, 0, false, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void test_every_symbol_is_exported(void) {
    void *self = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < gf_symbol_count; i++) {
        CHECK(i == 0 || strcmp(gf_symbols[i - 1].name, gf_symbols[i].name) <= 0);
        Dl_info info;
        CHECK(dladdr(gf_symbols[i].function, &info) && info.dli_sname);
        CHECK(dlsym(self, info.dli_sname) == gf_symbols[i].function);
        CHECK(!strncmp(info.dli_sname, "cu", 2));
    }
}

static void test_stubs(void) {
    CHECK(cuGraphCreate(NULL, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!strcmp(unsupported, "cuGraphCreate"));
    CHECK(cuMemcpyHtoD_v2_ptds(0, NULL, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!strcmp(unsupported, "cuMemcpyHtoD_v2"));
    CHECK(cuLaunchKernelEx_ptsz(&(CUlaunchConfig){0}, NULL, NULL, NULL) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!strcmp(unsupported, "cuLaunchKernelEx"));
    CHECK(cuCtxDestroy(NULL) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!strcmp(unsupported, "cuCtxDestroy_v2"));
}

static const void *table(const char *id) {
    CUuuid uuid;
    for (int i = 0; i < 16; i++)
        sscanf(id + 2 * i, "%2hhx", (unsigned char *)&uuid.bytes[i]);
    const void *found = (void *)1;
    CUresult result = gf_get_export_table(&found, &uuid);
    CHECK((result == CUDA_SUCCESS) == (found != NULL));
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE);
    return found;
}

typedef CUresult any_function(void);

static void test_tables(void) {
    static const struct {
        const char *id;
        size_t slots;
    } sized[] = {
        {"6bd5fb6c5bf4e74a8987d93912fd9df9", 13}, {"a094798c2e742e7493f20800200c0a66", 7},
        {"42d85a8123f6cb478298f6e78a3aecdc", 4},  {"263e88607cd2614392f6bbd5006dfa7e", 17},
        {"d4082055bde6704b8d34ba123c66e1f2", 3},  {"f8cff95121468b4eb9e2fb469e7c0dd9", 8},
        {"21318c60971432488ca641ff7324c8f2", 64}, {"6e163fbeb958444d835ce182aff1991e", 64},
        {"1734dc26800d47458726c0f1e7dd8bca", 64},
    };
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
        const size_t *slots = table(sized[i].id);
        CHECK(slots && slots[0] == sized[i].slots * sizeof *slots);
        for (size_t slot = 1; slot < sized[i].slots; slot++)
            CHECK(slots[slot]);
    }
    CHECK(!*logged);
    CHECK(!table("da9151d33ae6cc41a5c04f26d533e328"));
    CHECK(!*logged);
    CHECK(!table("00000000000000000000000000000001"));
    CHECK(strstr(logged, "00000000000000000000000000000001"));
    CHECK(gf_get_export_table(NULL, NULL) == CUDA_ERROR_INVALID_VALUE);

    any_function *const *runtime = table(sized[0].id);
    CUcontext context;
    CHECK(((CUresult (*)(CUcontext *, CUdevice))runtime[2])(&context, 1) == CUDA_SUCCESS);
    CHECK(context == (CUcontext)0x1001);
    CHECK(runtime[12]() == CUDA_SUCCESS);
    CHECK(runtime[9]() == CUDA_ERROR_NOT_SUPPORTED && strstr(logged, "cudart: slot 9"));
    *logged = 0;
    CHECK(runtime[9]() == CUDA_ERROR_NOT_SUPPORTED && !*logged);

    any_function *const *hooks = table(sized[1].id);
    uint64_t *flags;
    size_t count = 0;
    ((void (*)(void *, size_t *))hooks[2])(&flags, &count);
    CHECK(count >= 567);
    for (size_t i = 0; i < count; i++)
        CHECK(!flags[i]);
    ((void (*)(void *, size_t *))hooks[6])(&flags, &count);
    CHECK(count >= 14);

    uint32_t result = 7;
    any_function *const *checks = table(sized[3].id);
    CHECK(((CUresult (*)(CUcontext, uint32_t *, const void **))checks[2])(NULL, &result, NULL) ==
          CUDA_SUCCESS);
    CHECK(result == 0);
    CHECK(((CUresult (*)(CUcontext, uint32_t *, const void **))checks[2])(GREEN, &result, NULL) ==
          CUDA_SUCCESS);
    CHECK(result == 1);
    CHECK(checks[3]() == CUDA_SUCCESS);
}

static void test_selftest(void) {
    any_function *const *slots = table("d4082055bde6704b8d34ba123c66e1f2");
    const void *runtime = table("6bd5fb6c5bf4e74a8987d93912fd9df9");
    CUresult (*selftest)(uint32_t, uint64_t, uint64_t[2]) =
        (CUresult (*)(uint32_t, uint64_t, uint64_t[2]))slots[1];
    uint64_t out[2];
    CHECK(selftest(13000, 0, out) == CUDA_SUCCESS && out[0] == 0x3341181c03cb675c &&
          out[1] == 0x8ed383aa1f4cd1e8);
    CHECK(selftest(13001, 0, out) == CUDA_SUCCESS && out[0] == 0x1841181c03cb675c &&
          out[1] == 0x8ed383aa1f4cd1e8);

    uint8_t message[48 + 2 * 28];
    uint32_t words[4] = {13050, 13002, (uint32_t)getpid(), (uint32_t)(uintptr_t)pthread_self()};
    uint64_t longs[4] = {(uintptr_t)runtime, (uintptr_t)slots, (uintptr_t)slots[1], 1234567890};
    memcpy(message, words, 16);
    memcpy(message + 16, longs, 32);
    for (int i = 0; i < 2; i++) {
        int32_t pci[3] = {1, 2, i};
        memset(message + 48 + 28 * i, 0x40 + i, 16);
        memcpy(message + 48 + 28 * i + 16, pci, sizeof pci);
    }
    static const uint8_t key[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                    0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    uint8_t expected[16];
    gf_hmac_md2(key, message, sizeof message, expected);
    CHECK(selftest(13002, 1234567890, out) == CUDA_SUCCESS && !memcmp(out, expected, sizeof expected));
}

static int destroyed;

static void destructor(CUcontext context, void *key, void *value) {
    CHECK(context == (CUcontext)0x51 && (uintptr_t)value == (uintptr_t)key + 1);
    void *unused;
    CHECK(gf_context_storage_get(&unused, context, key) != CUDA_SUCCESS);
    destroyed++;
}

static void test_storage(void) {
    void *value;
    CUcontext a = (CUcontext)0x51, b = (CUcontext)0x52;
    CHECK(gf_context_storage_get(&value, NULL, (void *)1) == CUDA_ERROR_INVALID_CONTEXT);
    current = a;
    CHECK(gf_context_storage_get(&value, NULL, (void *)1) != CUDA_SUCCESS);
    for (uintptr_t key = 1; key <= 1000; key++)
        CHECK(gf_context_storage_put(NULL, (void *)key, (void *)(key + 1), destructor) == CUDA_SUCCESS);
    CHECK(gf_context_storage_put(b, (void *)1, (void *)77, NULL) == CUDA_SUCCESS);
    for (uintptr_t key = 1; key <= 1000; key++)
        CHECK(gf_context_storage_get(&value, a, (void *)key) == CUDA_SUCCESS && (uintptr_t)value == key + 1);
    CHECK(gf_context_storage_delete(a, (void *)5) == CUDA_SUCCESS && !destroyed);
    CHECK(gf_context_storage_delete(a, (void *)5) != CUDA_SUCCESS);
    gf_context_storage_drop(a);
    CHECK(destroyed == 999);
    CHECK(gf_context_storage_get(&value, a, (void *)1) != CUDA_SUCCESS);
    CHECK(gf_context_storage_get(&value, b, (void *)1) == CUDA_SUCCESS && value == (void *)77);
    current = NULL;
}

/* TSan sees a race in any round, and takes a hundred times as long for each. */
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 5, FORKS = 10 };
#else
enum { ROUNDS = 50, FORKS = 100 };
#endif

/* Readers never see a value of another key while a writer reuses its place. */
static atomic_bool stop;

static void *reader(void *argument) {
    while (!atomic_load(&stop))
        for (uintptr_t key = 1; key <= 600; key++) {
            void *value;
            if (gf_context_storage_get(&value, (CUcontext)0x60, (void *)key) == CUDA_SUCCESS)
                CHECK((uintptr_t)value == key * 3);
        }
    return argument;
}

static void test_storage_threads(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, reader, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (uintptr_t key = 1; key <= 600; key++)
            CHECK(gf_context_storage_put((CUcontext)0x60, (void *)key, (void *)(key * 3), NULL) ==
                  CUDA_SUCCESS);
        gf_context_storage_drop((CUcontext)0x60);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

/* A child finds the storage whole, whatever other threads were writing when it was made. */
static void *writer(void *argument) {
    for (uintptr_t key = 1; !atomic_load(&stop); key = key % 64 + 1)
        gf_context_storage_put((CUcontext)0x70, (void *)key, (void *)(key * 3), NULL);
    return argument;
}

static void test_storage_after_fork(void) {
    pthread_t thread;
    atomic_store(&stop, false);
    pthread_create(&thread, NULL, writer, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            for (uintptr_t key = 1; key <= 64; key++) {
                void *value;
                if (gf_context_storage_get(&value, (CUcontext)0x70, (void *)key) == CUDA_SUCCESS &&
                    (uintptr_t)value != key * 3)
                    _exit(1);
            }
            _exit(gf_context_storage_put((CUcontext)0x70, (void *)65, NULL, NULL) == CUDA_SUCCESS ? 0 : 2);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

int main(void) {
    test_md2();
    test_hmac();
    test_lookup();
    test_every_symbol_is_exported();
    test_stubs();
    test_tables();
    test_selftest();
    test_storage();
    test_storage_threads();
    test_storage_after_fork();
    return 0;
}
