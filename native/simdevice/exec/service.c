#define _GNU_SOURCE
#include "service.h"
#include "engine.h"
#include "reach.h"
#include "sanitizer.h"
#include "skip.h"
#include "wire/sha256.h"
#include <cpuid.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#ifndef SIM_PYTHON
#define SIM_PYTHON "python3"
#endif
#ifndef SIM_SOURCE_DIR /* native/simdevice of the source tree */
#define SIM_SOURCE_DIR ""
#endif
#ifndef SIM_PYTHONPATH /* a folder with the package gpuferry, for a library that is not installed */
#define SIM_PYTHONPATH ""
#endif

enum { CHECKED = 1 << 16, SKIPPED = 1 << 17 }; /* with an operation */

struct request {
    uint32_t op, cc;
    uint64_t size;
    uint8_t key[32];
};

struct answer {
    int32_t status;
    uint32_t reserved;
    uint64_t size;
};

/* A process with the compiler: one answers those who wait for it, the other works in the background. */
struct service {
    pthread_mutex_t lock;
    int connection;
    ino_t inode; /* of the connection */
};

static struct service services[] = {{PTHREAD_MUTEX_INITIALIZER, -1, 0}, {PTHREAD_MUTEX_INITIALIZER, -1, 0}};
enum { SERVICES = sizeof services / sizeof *services };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool installed;                    /* as part of the Python package */
static char own_folder[PATH_MAX];         /* where this library lies */
static char source_folder[PATH_MAX - 64]; /* native/simdevice with the compiler's sources */
static char package_parent[PATH_MAX];     /* for PYTHONPATH */

static void after_fork_in_child(void) {
    for (int i = 0; i < SERVICES; i++) {
        pthread_mutex_init(&services[i].lock, NULL);
        if (services[i].connection >= 0)
            close(services[i].connection);
        services[i].connection = -1;
    }
}

static void init(void) {
    Dl_info info;
    pthread_atfork(NULL, NULL, after_fork_in_child);
    if (dladdr((void *)services, &info) != 0 && realpath(info.dli_fname, own_folder) != NULL)
        *strrchr(own_folder, '/') = '\0';
    /* installed: gpuferry/native/sim/libcuda.so.1 beside gpuferry/native/simdevice/ */
    char file[PATH_MAX + 64];
    snprintf(source_folder, sizeof source_folder, "%.3900s/../simdevice", own_folder);
    snprintf(package_parent, sizeof package_parent, "%.3900s/../../..", own_folder);
    snprintf(file, sizeof file, "%s/compiler/__main__.py", source_folder);
    installed = access(file, R_OK) == 0;
    if (!installed) {
        snprintf(source_folder, sizeof source_folder, "%s", SIM_SOURCE_DIR);
        snprintf(package_parent, sizeof package_parent, "%s", SIM_PYTHONPATH);
    }
}

/* Once in a process, by a thread whose stack may be small. */
static void hash_file(struct gf_sha256 *hash, int folder, const char *name) {
    static char buffer[16384];
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    for (ssize_t size; (size = read(file, buffer, sizeof buffer)) > 0;)
        gf_sha256_update(hash, buffer, (size_t)size);
    close(file);
}

static int is_source(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_type == DT_DIR ? entry->d_name[0] != '.' && entry->d_name[0] != '_'
                                   : dot != NULL && strcmp(dot, ".py") == 0;
}

static void hash_folder(struct gf_sha256 *hash, const char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, is_source, alphasort);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < count; i++) {
        char *below;
        if (entries[i]->d_type == DT_DIR) {
            if (asprintf(&below, "%s/%s", path, entries[i]->d_name) > 0) {
                hash_folder(hash, below);
                free(below);
            }
        } else if (folder >= 0) {
            hash_file(hash, folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (folder >= 0)
        close(folder);
}

static uint8_t identity[32];
static pthread_once_t remembered = PTHREAD_ONCE_INIT;
static void remember(void);

static void make_identity(void) {
    static const char *const parts[] = {"ptx", "compiler"};
    struct gf_sha256 hash;
    pthread_once(&once, init);
    gf_sha256_init(&hash);
    uint32_t words[11] = {SIM_KERNEL_ABI, [9] = sim_kernels_checked(), sim_code_skipped()}, unused;
    __get_cpuid(1, &words[1], &unused, &words[2], &words[3]);
    __get_cpuid_count(7, 0, &unused, &words[4], &words[5], &words[6]);
    __get_cpuid_count(7, 1, &words[7], &unused, &unused, &words[8]);
    gf_sha256_update(&hash, words, sizeof words);
    const char *unit = getenv("GPUFERRY_SIM_UNIT"); /* ptx/compiler.py: which form kernels have */
    if (unit != NULL)
        gf_sha256_update(&hash, unit, strlen(unit) + 1);
    for (int i = 0; i < 2; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", source_folder, parts[i]) > 0) {
            hash_folder(&hash, path);
            free(path);
        }
    }
    gf_sha256_final(&hash, identity);
}

void sim_service_key(const uint8_t content[32], int cc, uint8_t key[32]) {
    static pthread_once_t made = PTHREAD_ONCE_INIT;
    struct gf_sha256 hash;
    pthread_once(&made, make_identity);
    pthread_once(&remembered, remember);
    gf_sha256_init(&hash);
    gf_sha256_update(&hash, identity, sizeof identity);
    gf_sha256_update(&hash, &cc, sizeof cc);
    gf_sha256_update(&hash, content, 32);
    gf_sha256_final(&hash, key);
}

/* LD_LIBRARY_PATH without our folder: the service must not load the simulated driver. */
static void without_own_folder(char *list) {
    char *out = list;
    size_t own = strlen(own_folder);
    for (char *item = list; item != NULL && *item != '\0';) {
        char *colon = strchr(item, ':');
        size_t length = colon != NULL ? (size_t)(colon - item) : strlen(item);
        char *path = strndup(item, length);
        char *resolved = path != NULL && length > 0 ? realpath(path, NULL) : NULL;
        bool ours = own > 0 && resolved != NULL && strcmp(resolved, own_folder) == 0;
        free(resolved);
        free(path);
        if (!ours) {
            if (out != list)
                *out++ = ':';
            memmove(out, item, length);
            out += length;
        }
        item = colon != NULL ? colon + 1 : NULL;
    }
    *out = '\0';
}

/* A copy of the environment without what would make the service load us, or another Python's modules. */
static char **make_environment(void) {
    size_t count = 0, used = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    char **copy = calloc(count + 2, sizeof *copy);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const char *v = environ[i];
        if (strncmp(v, "LD_PRELOAD=", 11) == 0 || strncmp(v, "PYTHONHOME=", 11) == 0 ||
            strncmp(v, "PYTHONPATH=", 11) == 0 || strncmp(v, "PYTHONSTARTUP=", 14) == 0 ||
            strncmp(v, "PYTHONINSPECT=", 14) == 0 || strncmp(v, "CUDA_INJECTION64_PATH=", 22) == 0)
            continue;
        char *own = strdup(v);
        if (own != NULL && strncmp(own, "LD_LIBRARY_PATH=", 16) == 0)
            without_own_folder(own + 16);
        if (own != NULL)
            copy[used++] = own;
    }
    char *path;
    const char *inherited = getenv("PYTHONPATH");
    if (asprintf(&path, "PYTHONPATH=%s%s%s", package_parent, inherited != NULL ? ":" : "",
                 inherited != NULL ? inherited : "") > 0)
        copy[used] = path;
    return copy;
}

/* Two clones: the first ends at once, so that the service is no child of the program, which might wait for
 * its own. Both share our memory until they exec or end, and neither may touch anything but `struct start`.
 */
struct start {
    const char *python;
    char *const *arguments;
    char *const *environment;
    int socket;
    uint8_t *inner_stack_top;
    volatile int error;
};

static int service_process(void *argument) {
    struct start *start = argument;
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            syscall(SYS_rt_sigaction, number, (uint64_t[4]){0}, NULL, 8);
    setsid();
    if (dup2(start->socket, 0) < 0 || dup2(2, 1) < 0 || chdir("/") != 0) {
        start->error = errno;
        _exit(1);
    }
    syscall(SYS_close_range, 3u, ~0u, 0u);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(start->python, start->arguments, start->environment);
    start->error = errno;
    _exit(1);
}

static int intermediate_process(void *argument) {
    struct start *start = argument;
    if (clone(service_process, start->inner_stack_top, CLONE_VM | CLONE_VFORK, start) < 0)
        start->error = errno;
    _exit(0);
}

static int start_process(struct start *start) {
    enum { STACK = 256 << 10 };
    uint8_t *stacks =
        mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return ENOMEM;
    start->inner_stack_top = stacks + STACK;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = sim_under_tsan()
                    ? fork()
                    : clone(intermediate_process, stacks + 2 * STACK, CLONE_VM | CLONE_VFORK, start);
    if (pid == 0)
        intermediate_process(start);
    if (pid < 0)
        start->error = errno;
    else
        while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
#if defined(__SANITIZE_ADDRESS__) /* functions that never returned left its marks there */
    __asan_unpoison_memory_region(stacks, 2 * STACK);
#endif
    munmap(stacks, 2 * STACK);
    return start->error;
}

static bool send_all(const struct service *service, const void *data, size_t size) {
    const uint8_t *p = data;
    while (size > 0) {
        ssize_t sent = send(service->connection, p, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        p += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool receive_all(const struct service *service, void *data, size_t size) {
    uint8_t *p = data;
    while (size > 0) {
        ssize_t received = recv(service->connection, p, size, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            return false;
        p += received;
        size -= (size_t)received;
    }
    return true;
}

static void hang_up(struct service *service) {
    close(service->connection);
    service->connection = -1;
}

/* What the service sends once it has imported all that it needs. */
static CUresult await_hello(struct service *service, const char *python, char *log, size_t log_size) {
    static const char expected[8] = "gpuferry";
    char hello[sizeof expected];
    if (receive_all(service, hello, sizeof hello) && memcmp(hello, expected, sizeof hello) == 0)
        return CUDA_SUCCESS;
    hang_up(service);
    snprintf(log, log_size,
             "the PTX compiler did not start: is gpuferry, with its extra 'sim', installed for %s "
             "(GPUFERRY_SIM_PYTHON)?",
             python);
    return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
}

/* $GPUFERRY_SIM_PYTHON; the one of the environment that the library is installed in; the one that built it.
 */
static const char *interpreter(char path[PATH_MAX + 64]) {
    const char *setting = getenv("GPUFERRY_SIM_PYTHON");
    if (setting != NULL && *setting != '\0')
        return setting;
    /* package_parent is PREFIX/lib/python3.x/site-packages */
    snprintf(path, PATH_MAX + 64, "%s/../../../bin/python3", package_parent);
    if (installed && access(path, X_OK) == 0)
        return path;
    return access(SIM_PYTHON, X_OK) == 0 ? SIM_PYTHON : "python3";
}

static char **environment; /* of services */
static char python[PATH_MAX + 64];

/* When the program loads its first image: later one may be started by a thread of ours, while the program
 * sets variables. */
static void remember(void) {
    char path[PATH_MAX + 64];
    pthread_once(&once, init);
    environment = make_environment();
    snprintf(python, sizeof python, "%s", interpreter(path));
}

static CUresult start_service(struct service *service, char *log, size_t log_size) {
    int sockets[2];
    pthread_once(&remembered, remember);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        snprintf(log, log_size, "cannot start the PTX compiler: %s", strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    char *arguments[] = {python, "-m", "gpuferry.native.simdevice.compiler", NULL};
    struct start start = {.python = python,
                          .arguments = arguments,
                          .environment = environment,
                          .socket = sockets[1],
                          .error = 0};
    int error = environment != NULL ? start_process(&start) : ENOMEM;
    close(sockets[1]);
    struct stat status;
    if (error != 0 || fstat(sockets[0], &status) != 0) {
        close(sockets[0]);
        snprintf(log, log_size,
                 "cannot start the PTX compiler with %s (set GPUFERRY_SIM_PYTHON to a Python that has "
                 "gpuferry): %s",
                 python, strerror(error));
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    }
    service->connection = sockets[0];
    service->inode = status.st_ino;
    return await_hello(service, python, log, log_size);
}

/* An image expands to 64 MiB of text and as much of initial values (compiler/fatbin.py, ptx/module.py). */
enum { LARGEST_ANSWER = 512 << 20 };
/* One that ended later than this after it was asked did so because of what it was asked. */
enum { PROMPT_SECONDS = 1 };

struct parts {
    const void *first, *second;
    size_t first_size, second_size;
};

static bool exchange(const struct service *service, const struct request *request, const struct parts *parts,
                     struct answer *answer, struct sim_blob *reply) {
    if (!send_all(service, request, sizeof *request) || !send_all(service, parts->first, parts->first_size) ||
        !send_all(service, parts->second, parts->second_size) ||
        !receive_all(service, answer, sizeof *answer))
        return false;
    if (answer->size > LARGEST_ANSWER)
        return false;
    uint8_t *data = malloc(answer->size + 1);
    if (data == NULL || !receive_all(service, data, answer->size)) {
        free(data);
        return false;
    }
    data[answer->size] = '\0';
    *reply = (struct sim_blob){data, answer->size, data, 0};
    return true;
}

/* The program may have closed our descriptor with all others, and its number may now be another file's. */
static void check_connection(struct service *service) {
    struct stat status;
    if (service->connection >= 0 &&
        (fstat(service->connection, &status) != 0 || status.st_ino != service->inode))
        service->connection = -1;
}

static time_t seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

static CUresult call_locked(struct service *service, const struct request *request, const struct parts *parts,
                            struct sim_blob *reply, char *log, size_t log_size) {
    struct answer answer;
    check_connection(service);
    time_t began = seconds_now();
    for (int fresh = service->connection < 0;; fresh = 1) {
        if (service->connection < 0) {
            CUresult started = start_service(service, log, log_size);
            if (started != CUDA_SUCCESS)
                return started;
        }
        if (exchange(service, request, parts, &answer, reply))
            break;
        hang_up(service);
        time_t took = seconds_now() - began;
        if (fresh || took > PROMPT_SECONDS) { /* else it had ended because it was idle */
            snprintf(
                log, log_size,
                "the PTX compiler ended without an answer after %ld s: compiling this takes more time or "
                "memory than it is given (GPUFERRY_SIM_COMPILE_SECONDS, GPUFERRY_SIM_COMPILE_BYTES)",
                (long)took);
            return CUDA_ERROR_INVALID_PTX;
        }
    }
    if (answer.status == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    snprintf(log, log_size, "%s", (const char *)reply->data);
    sim_blob_free(reply);
    return (CUresult)answer.status;
}

CUresult sim_service_call(enum sim_service_op op, int cc, const uint8_t key[32], const void *first,
                          size_t first_size, const void *second, size_t second_size, struct sim_blob *reply,
                          char *log, size_t log_size) {
    struct request request = {.op = op | (sim_kernels_checked() ? CHECKED : 0) |
                                    (sim_code_skipped() ? SKIPPED : 0),
                              .cc = (uint32_t)cc,
                              .size = first_size + second_size};
    const struct parts parts = {first, second, first_size, second_size};
    memcpy(request.key, key, sizeof request.key);
    struct service *service = &services[op == SIM_SERVICE_OPTIMISE];
    pthread_mutex_lock(&service->lock);
    CUresult result = call_locked(service, &request, &parts, reply, log, log_size);
    pthread_mutex_unlock(&service->lock);
    return result;
}
