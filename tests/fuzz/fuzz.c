/* Runs a target in this process, guided by coverage (gcc's trace-pc): an input that reaches new code is kept
 * and changed further. The same seed gives the same inputs.
 *
 *     fuzz TARGET CORPUS RUNS SEED CRASH [GROWN]
 *
 * CORPUS: a folder of inputs to begin with. CRASH: where an input is written that ends the process. GROWN: a
 * folder for inputs that reached new code. The last line on stdout says how many inputs were run. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MAP_SIZE     (1u << 13)
#define POOL_MAX     4096
#define HANG_SECONDS 20
#define CHANGES_MOST 6

struct input {
    uint8_t *data;
    size_t size;
};

static uint8_t hits[MAP_SIZE], seen[MAP_SIZE]; /* how often in this run, in classes; classes in all runs */
static uintptr_t previous;
static struct input pool[POOL_MAX];
static size_t pool_size;
static uint64_t state;
static unsigned long done;
static unsigned edges;
static const char *crash_path;
static const uint8_t *current;
static size_t current_size;

/* Called by the code under test at every branch; this file is built without. */
void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0) & (MAP_SIZE - 1);
    uint8_t *hit = &hits[here ^ previous];
    *hit = (uint8_t)(*hit + (*hit != 255));
    previous = here >> 1;
}

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit) {
    return limit == 0 ? 0 : (size_t)(next() % limit);
}

uint64_t fuzz_take(struct fuzz_input *input, size_t size) {
    uint64_t value = 0;
    fuzz_take_bytes(input, &value, size);
    return value;
}

size_t fuzz_take_bytes(struct fuzz_input *input, void *to, size_t size) {
    size_t part = size < input->left ? size : input->left;
    memset(to, 0, size);
    if (part > 0) {
        memcpy(to, input->at, part);
    }
    input->at += part;
    input->left -= part;
    return part;
}

void *fuzz_malloc(size_t size) {
    return size > FUZZ_MALLOC_MAX ? NULL : malloc(size);
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        fprintf(stderr, "cannot write %s\n", path);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void keep_crash(void) {
    if (current != NULL) {
        write_file(crash_path, current, current_size);
    }
}

static void died(int signal) {
    keep_crash();
    raise(signal); /* again, by default */
}

static void look_for_hang(int signal) {
    static unsigned long before = -1ul;
    if (done == before) {
        fprintf(stderr, "one input takes longer than %d s\n", HANG_SECONDS);
        abort();
    }
    before = done;
}

/* Whether it reached a branch more, or one of them in another class of how often. */
static bool learn(void) {
    bool news = false;
    for (size_t word = 0; word < MAP_SIZE / 8; word++) {
        uint64_t eight;
        memcpy(&eight, hits + 8 * word, sizeof eight);
        for (size_t i = 8 * word; eight != 0 && i < 8 * word + 8; i++) {
            if (hits[i] == 0) {
                continue;
            }
            uint8_t class = hits[i] == 1 ? 1 : hits[i] < 4 ? 2 : hits[i] < 16 ? 4 : hits[i] < 128 ? 8 : 16;
            if ((seen[i] & class) == 0) {
                edges += seen[i] == 0;
                seen[i] |= class;
                news = true;
            }
        }
    }
    return news;
}

static void keep(const uint8_t *data, size_t size) {
    struct input *place = &pool[pool_size < POOL_MAX ? pool_size++ : below(POOL_MAX)];
    free(place->data);
    place->data = malloc(size + 1);
    memcpy(place->data, data, size);
    place->size = size;
}

static bool run(const struct fuzz_target *target, const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size + (size == 0));
    memcpy(exact, data, size);
    memset(hits, 0, sizeof hits);
    previous = 0;
    current = exact;
    current_size = size;
    target->run(exact, size);
    current = NULL;
    free(exact);
    done++;
    bool news = learn();
    if (news) {
        keep(data, size);
    }
    return news;
}

static uint64_t interesting(const struct fuzz_target *target, size_t size) {
    static const uint64_t numbers[] = {
        0,          1,          2,          7,          8,          0x7f,    0x80,       0xff,
        0x100,      0x7fff,     0x8000,     0xffff,     1 << 20,    1 << 28, 0x7fffffff, 0x80000000u,
        0xffffffff, 1ull << 32, 1ull << 36, ~0ull >> 1, 1ull << 63, ~0ull};
    size_t kind = below(4);
    if (kind == 0 && target->word_count > 0) {
        return target->words[below(target->word_count)];
    }
    return kind == 1 ? size + below(33) - 16 : kind == 2 ? next() : numbers[below(sizeof numbers / 8)];
}

/* What changes: a bit, a number, the end, a piece that is gone, twice there, elsewhere, or of another input.
 */
static size_t change(const struct fuzz_target *target, uint8_t *data, size_t size) {
    size_t at = below(size), part = size == 0 ? 0 : 1 + below(size - at < 64 ? size - at : 64);
    size_t width = (size_t)1 << below(4);
    uint64_t number = interesting(target, size);
    switch (below(9)) {
    case 0:
        if (size > 0) {
            data[at] ^= (uint8_t)(1u << below(8));
        }
        return size;
    case 1:
    case 2:
        at = below(2) != 0 ? at : at & ~(width - 1);
        if (size >= width && at <= size - width) {
            memcpy(data + at, &number, width);
        }
        return size;
    case 3:
        if (size >= width && at <= size - width) {
            uint64_t value = 0;
            memcpy(&value, data + at, width);
            value += below(17) - 8;
            memcpy(data + at, &value, width);
        }
        return size;
    case 4:
        return below(4) == 0 ? at : size - below(size < 16 ? size : 16);
    case 5:
        memmove(data + at, data + at + part, size - at - part);
        return size - part;
    case 6:
        if (size + part <= FUZZ_INPUT_MAX) {
            memmove(data + at + part, data + at, size - at);
            return size + part;
        }
        return size;
    case 7:
        if (size + width <= FUZZ_INPUT_MAX) {
            memcpy(data + size, &number, width);
            return size + width;
        }
        return size;
    default: {
        const struct input *other = &pool[below(pool_size)];
        size_t from = below(other->size), most = other->size - from;
        most = most < FUZZ_INPUT_MAX - at ? most : FUZZ_INPUT_MAX - at;
        memcpy(data + at, other->data + from, most);
        return at + most > size ? at + most : size;
    }
    }
}

static void grow(const char *folder, const uint8_t *data, size_t size) {
    char path[4096];
    uint64_t name = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) {
        name = (name ^ data[i]) * 1099511628211u;
    }
    snprintf(path, sizeof path, "%s/%016llx", folder, (unsigned long long)name);
    write_file(path, data, size);
}

static void read_corpus(const struct fuzz_target *target, const char *folder, const char *grown) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[4096];
        uint8_t data[FUZZ_INPUT_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        int fd = entries[i]->d_name[0] == '.' ? -1 : open(path, O_RDONLY);
        ssize_t size = fd < 0 ? -1 : read(fd, data, sizeof data);
        if (size >= 0 && run(target, data, (size_t)size) && grown != NULL) {
            grow(grown, data, (size_t)size);
        }
        if (fd >= 0) {
            close(fd);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    if (pool_size == 0) {
        keep((const uint8_t *)"", 0);
    }
}

static const struct fuzz_target *find(const char *name) {
    for (size_t i = 0; i < fuzz_target_count; i++) {
        if (strcmp(fuzz_targets[i].name, name) == 0) {
            return &fuzz_targets[i];
        }
    }
    return NULL;
}

int main(int count, char **words) {
    const struct fuzz_target *target = count < 6 ? NULL : find(words[1]);
    if (target == NULL) {
        fprintf(stderr, "usage: fuzz TARGET CORPUS RUNS SEED CRASH [GROWN]\n");
        return 2;
    }
    unsigned long runs = strtoul(words[3], NULL, 10);
    state = strtoul(words[4], NULL, 10) * 0x9e3779b97f4a7c15u + 88172645463325252u;
    crash_path = words[5];
    __sanitizer_set_death_callback(keep_crash);
    sigaction(SIGABRT, &(struct sigaction){.sa_handler = died, .sa_flags = SA_RESETHAND}, NULL);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = look_for_hang, .sa_flags = SA_RESTART}, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{HANG_SECONDS, 0}, {HANG_SECONDS, 0}}, NULL);
    read_corpus(target, words[2], count > 6 ? words[6] : NULL);
    while (done < runs) {
        uint8_t data[FUZZ_INPUT_MAX];
        const struct input *base = &pool[below(pool_size)];
        size_t size = base->size;
        memcpy(data, base->data, size);
        for (size_t changes = 1 + below(CHANGES_MOST); changes > 0; changes--) {
            size = change(target, data, size);
        }
        if (run(target, data, size) && count > 6) {
            grow(words[6], data, size);
        }
    }
    for (size_t i = 0; i < pool_size; i++) {
        free(pool[i].data);
    }
    printf("%s: %lu inputs, %u branches\n", target->name, done, edges);
    return 0;
}
