/* What a driver answers without its device, the same in the guest and in the simulated device: settings of
 * core dumps, notifications. Who includes this defines DRIVER(name), how its functions are called, and
 * ENTER, which returns where cuInit was not called. */
#include <pthread.h>
#include <string.h>

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
    } while (0)

/* Registered callbacks; but for logs, nothing that would call them ever happens. */
enum { REGISTERED_MOST = 64, LOGS = 1, NOTIFICATIONS, DUMP_START, DUMP_COMPLETE };
static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered {
    int of;                  /* 0: free */
    CUlogsCallback callback; /* of logs */
    void *data;
} registered[REGISTERED_MOST];

static CUresult enrol(const struct registered *one, void **handle) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&registered_lock);
    for (int i = 0; i < REGISTERED_MOST && result != CUDA_SUCCESS; i++) {
        if (registered[i].of == 0) {
            registered[i] = *one;
            *handle = &registered[i];
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&registered_lock);
    return result;
}

static CUresult strike(int of, const void *handle) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&registered_lock);
    for (int i = 0; i < REGISTERED_MOST; i++) {
        if (handle == &registered[i] && registered[i].of == of) {
            registered[i].of = 0;
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&registered_lock);
    return result;
}

CUresult DRIVER(cuDeviceRegisterAsyncNotification)(CUdevice device, CUasyncCallback callbackFunc,
                                                   void *userData, CUasyncCallbackHandle *callback) {
    int count = 0;
    ENTER;
    REQUIRE(callbackFunc != NULL && callback != NULL);
    DRIVER(cuDeviceGetCount)(&count);
    return device < 0 || device >= count
               ? CUDA_ERROR_INVALID_DEVICE
               : enrol(&(struct registered){.of = NOTIFICATIONS}, (void **)callback);
}

CUresult DRIVER(cuDeviceUnregisterAsyncNotification)(CUdevice device, CUasyncCallbackHandle callback) {
    int count = 0;
    ENTER;
    DRIVER(cuDeviceGetCount)(&count);
    return device < 0 || device >= count ? CUDA_ERROR_INVALID_DEVICE : strike(NOTIFICATIONS, callback);
}

CUresult DRIVER(cuCoredumpRegisterStartCallback)(CUcoredumpStatusCallback callback, void *userData,
                                                 CUcoredumpCallbackHandle *callbackOut) {
    ENTER;
    REQUIRE(callback != NULL && callbackOut != NULL);
    return enrol(&(struct registered){.of = DUMP_START}, (void **)callbackOut);
}

CUresult DRIVER(cuCoredumpRegisterCompleteCallback)(CUcoredumpStatusCallback callback, void *userData,
                                                    CUcoredumpCallbackHandle *callbackOut) {
    ENTER;
    REQUIRE(callback != NULL && callbackOut != NULL);
    return enrol(&(struct registered){.of = DUMP_COMPLETE}, (void **)callbackOut);
}

CUresult DRIVER(cuCoredumpDeregisterStartCallback)(CUcoredumpCallbackHandle callback) {
    ENTER;
    return strike(DUMP_START, callback);
}

CUresult DRIVER(cuCoredumpDeregisterCompleteCallback)(CUcoredumpCallbackHandle callback) {
    ENTER;
    return strike(DUMP_COMPLETE, callback);
}

/* Core dumps: what is set is kept and read back; none is ever written, for there is no machine code to dump.
 */
static pthread_mutex_t dumps_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dumps {
    bool flags[CU_COREDUMP_MAX];
    char texts[2][1024]; /* file, pipe */
    unsigned generation;
} dumps = {.flags = {[CU_COREDUMP_TRIGGER_HOST] = true}};

/* Where a setting is kept, and how much of it; NULL: there is no such one. */
static void *dump_setting(CUcoredumpSettings setting, size_t *size) {
    *size = sizeof(bool);
    switch ((int)setting) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return &dumps.flags[setting];
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        *size = sizeof dumps.texts[0];
        return dumps.texts[setting - CU_COREDUMP_FILE];
    case CU_COREDUMP_GENERATION_FLAGS:
        *size = sizeof dumps.generation;
        return &dumps.generation;
    default:
        return NULL;
    }
}

/* Without `value` the size alone is told; a text may be read in part. */
CUresult DRIVER(cuCoredumpGetAttributeGlobal)(CUcoredumpSettings attrib, void *value, size_t *size) {
    size_t kept;
    ENTER;
    const void *setting = dump_setting(attrib, &kept);
    bool text = attrib == CU_COREDUMP_FILE || attrib == CU_COREDUMP_PIPE;
    REQUIRE(setting != NULL && size != NULL && (value == NULL || text || *size >= kept));
    pthread_mutex_lock(&dumps_lock);
    if (value != NULL) {
        memcpy(value, setting, *size < kept ? *size : kept);
    }
    pthread_mutex_unlock(&dumps_lock);
    *size = kept;
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuCoredumpSetAttributeGlobal)(CUcoredumpSettings attrib, void *value, size_t *size) {
    size_t kept;
    ENTER;
    void *setting = dump_setting(attrib, &kept);
    bool text = attrib == CU_COREDUMP_FILE || attrib == CU_COREDUMP_PIPE;
    REQUIRE(setting != NULL && value != NULL && size != NULL && (text ? *size < kept : *size == kept));
    pthread_mutex_lock(&dumps_lock);
    memcpy(setting, value, *size);
    if (text) {
        ((char *)setting)[*size] = '\0';
    }
    pthread_mutex_unlock(&dumps_lock);
    return CUDA_SUCCESS;
}

/* Of a context: those of all, which begin as what a context has. */
CUresult DRIVER(cuCoredumpGetAttribute)(CUcoredumpSettings attrib, void *value, size_t *size) {
    CUcontext context = NULL;
    ENTER;
    DRIVER(cuCtxGetCurrent)(&context);
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT
                           : DRIVER(cuCoredumpGetAttributeGlobal)(attrib, value, size);
}

/* Those that concern the process can be set for all contexts alone. */
CUresult DRIVER(cuCoredumpSetAttribute)(CUcoredumpSettings attrib, void *value, size_t *size) {
    CUcontext context = NULL;
    ENTER;
    DRIVER(cuCtxGetCurrent)(&context);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    REQUIRE(attrib != CU_COREDUMP_ENABLE_USER_TRIGGER && attrib != CU_COREDUMP_PIPE);
    return DRIVER(cuCoredumpSetAttributeGlobal)(attrib, value, size);
}
