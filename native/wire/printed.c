#include "printed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "uncancelled.h"

enum { STREAMS = 2 };

static struct kept {
    char *text;
    size_t size, room;
} kept[STREAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool gf_printed_kept;

static FILE *stream(int i) {
    return i == 0 ? stdout : stderr;
}

static void keep(int i, const char *text, size_t size) {
    struct kept *k = &kept[i];
    pthread_mutex_lock(&lock);
    if (k->size + size > k->room) {
        size_t room = 2 * (k->size + size);
        char *grown = realloc(k->text, room);
        k->room = grown == NULL ? k->room : room;
        k->text = grown == NULL ? k->text : grown;
    }
    if (k->size + size <= k->room) {
        memcpy(k->text + k->size, text, size);
        k->size += size;
    }
    atomic_store(&gf_printed_kept, true);
    pthread_mutex_unlock(&lock);
}

/* With the stream locked, so that nothing comes before what was kept. */
static void write_kept(int i) {
    pthread_mutex_lock(&lock);
    struct kept taken = kept[i];
    kept[i] = (struct kept){0};
    atomic_store(&gf_printed_kept, kept[!i].size > 0);
    pthread_mutex_unlock(&lock);
    if (taken.size > 0) {
        fwrite(taken.text, 1, taken.size, stream(i));
    }
    free(taken.text);
}

void gf_printed(FILE *to, const char *text, size_t size, bool may_write) {
    int i = to == stderr;
    if (!may_write || ftrylockfile(to) != 0) {
        keep(i, text, size);
        return;
    }
    write_kept(i);
    fwrite(text, 1, size, to);
    fflush(to);
    funlockfile(to);
}

static bool has_kept(int i) {
    pthread_mutex_lock(&lock);
    bool any = kept[i].size > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

void gf_printed_write_kept(void) {
    GF_UNCANCELLED;
    for (int i = 0; i < STREAMS; i++) {
        if (has_kept(i)) {
            flockfile(stream(i));
            write_kept(i);
            fflush(stream(i));
            funlockfile(stream(i));
        }
    }
}
