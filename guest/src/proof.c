#include "proof.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session.h"
#include "wire/sha256.h"

#define LARGEST (1u << 20) /* bytes of the file; one that is larger is begun anew */
#define SAFELY  (O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW)

typedef uint8_t proof[GF_SHA256_SIZE];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proof *proofs;
static size_t count, room;
static bool was_read;
static char path[512]; /* empty: there is no cache */

/* What decides whether an image loads: the image, the driver, and the device that it is compiled for. */
static void prove(const uint8_t hash[GF_HASH_SIZE], const struct gf_device *device, proof out) {
    uint32_t driver[] = {gf_session.driver_version, gf_session.image_kinds};
    struct gf_sha256 all;
    gf_sha256_init(&all);
    gf_sha256_update(&all, hash, GF_HASH_SIZE);
    gf_sha256_update(&all, driver, sizeof driver);
    gf_sha256_update(&all, device->name, strnlen(device->name, sizeof device->name));
    gf_sha256_update(&all, device->attributes, sizeof device->attributes);
    gf_sha256_final(&all, out);
}

/* Lock held. */
static bool is_listed(const proof wanted) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(proofs[i], wanted, sizeof(proof)) == 0) {
            return true;
        }
    }
    return false;
}

/* Lock held. */
static bool make_room(size_t more) {
    if (count + more > room) {
        size_t wanted = 2 * room + more;
        proof *grown = realloc(proofs, wanted * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        proofs = grown;
        room = wanted;
    }
    return true;
}

static bool use(const char *base, const char *below) {
    int size = snprintf(path, sizeof path, "%s%s", base == NULL ? "" : base, below);
    if (base == NULL || base[0] != '/' || size < 0 || (size_t)size >= sizeof path) {
        path[0] = '\0';
        return false;
    }
    return true;
}

/* The file beside the simulated device's cache. CUDA_CACHE_DISABLE says of NVIDIA's own cache that nothing of
 * what is compiled is to be remembered. */
static void find_file(void) {
    const char *disabled = getenv("CUDA_CACHE_DISABLE");
    if (disabled != NULL && strcmp(disabled, "0") != 0) {
        return;
    }
    if (!use(getenv("XDG_CACHE_HOME"), "/gpuferry/loads")) {
        use(getenv("HOME"), "/.cache/gpuferry/loads");
    }
}

/* Where the folder is not ours alone, the name may be another's, or lead to a file of ours. */
static bool is_ours(int fd, struct stat *found) {
    return syscall(SYS_fstat, fd, found) == 0 && S_ISREG(found->st_mode) && found->st_uid == geteuid() &&
           found->st_nlink == 1;
}

/* Lock held. A file whose length is wrong was cut short, and says nothing. */
static void read_file(void) {
    was_read = true;
    find_file();
    int fd = path[0] == '\0' ? -1 : open(path, O_RDONLY | SAFELY);
    struct stat found;
    if (fd < 0) {
        return;
    }
    if (!is_ours(fd, &found)) {
        path[0] = '\0';
    } else if (found.st_size > LARGEST || found.st_size % (off_t)sizeof(proof) != 0) {
        unlink(path);
    } else if (make_room((size_t)found.st_size / sizeof(proof))) {
        ssize_t got = read(fd, proofs + count, (size_t)found.st_size);
        count += got < 0 ? 0 : (size_t)got / sizeof(proof);
    }
    close(fd);
}

static int open_file(void) {
    const int flags = O_WRONLY | O_APPEND | O_CREAT | SAFELY;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == ENOENT) {
        for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
            *at = '\0';
            mkdir(path, 0700); /* what is there already stays as it is; what cannot be made shows below */
            *at = '/';
        }
        fd = open(path, flags, 0600);
    }
    struct stat found;
    if (fd >= 0 && !is_ours(fd, &found)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool gf_proof_have(const uint8_t hash[GF_HASH_SIZE], const struct gf_device *device) {
    proof wanted;
    prove(hash, device, wanted);
    pthread_mutex_lock(&lock);
    if (!was_read) {
        read_file();
    }
    bool found = is_listed(wanted);
    pthread_mutex_unlock(&lock);
    return found;
}

/* A file that cannot be written costs later processes an answer to wait for, and nothing else. */
void gf_proof_add(const uint8_t hash[GF_HASH_SIZE], const struct gf_device *device) {
    proof made;
    prove(hash, device, made);
    pthread_mutex_lock(&lock);
    if (!is_listed(made) && make_room(1)) {
        memcpy(proofs[count++], made, sizeof made);
        int fd = path[0] == '\0' ? -1 : open_file();
        if (fd >= 0) {
            if (write(fd, made, sizeof made) != (ssize_t)sizeof made) {
                path[0] = '\0'; /* whoever reads it next begins it anew */
            }
            close(fd);
        }
    }
    pthread_mutex_unlock(&lock);
}
