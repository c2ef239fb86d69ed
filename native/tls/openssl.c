#include "openssl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* A program's calls go on while it exits, and later than OpenSSL would clear everything away. */
#define OPENSSL_INIT_NO_ATEXIT UINT64_C(0x00080000)

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct gf_crypto crypto;
static struct gf_ssl ssl;

static bool load(const char *const names[2], const char *const functions[], void **targets, char *why,
                 size_t size) {
    void *library = dlopen(names[0], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, size, "%s", dlerror()); /* of the one that should be there */
        library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        return false;
    }
    for (size_t i = 0; functions[i] != NULL; i++) {
        void *found = dlsym(library, functions[i]);
        if (found == NULL) {
            snprintf(why, size, "%s has no %s: OpenSSL 1.1.1 or 3 is needed", names[0], functions[i]);
            return false;
        }
        targets[i] = found;
    }
    return true;
}

#define GF_NAME(name, result, arguments) #name,

const struct gf_crypto *gf_crypto_load(char *why, size_t why_size) {
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    static const char *const functions[] = {GF_CRYPTO_FUNCTIONS(GF_NAME) NULL};
    static bool loaded;
    pthread_mutex_lock(&loading);
    if (!loaded && load(names, functions, (void **)&crypto, why, why_size)) {
        loaded = crypto.OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) == 1;
        if (!loaded) {
            snprintf(why, why_size, "libcrypto cannot be started");
        }
    }
    bool fine = loaded;
    pthread_mutex_unlock(&loading);
    return fine ? &crypto : NULL;
}

const struct gf_ssl *gf_ssl_load(char *why, size_t why_size) {
    static const char *const names[] = {"libssl.so.3", "libssl.so.1.1"};
    static const char *const functions[] = {GF_SSL_FUNCTIONS(GF_NAME) NULL};
    static bool loaded;
    if (gf_crypto_load(why, why_size) == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&loading);
    loaded = loaded || load(names, functions, (void **)&ssl, why, why_size);
    bool fine = loaded;
    pthread_mutex_unlock(&loading);
    return fine ? &ssl : NULL;
}
