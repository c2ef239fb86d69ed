/* vprintf of a kernel: formatted at once, put out when the grid ends (or the buffer is full), as CUDA does at
 * the next synchronisation. */
#include "engine.h"
#include "execute.h"
#include "reach.h"
#include "wire/printed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FLUSH_AT = 1 << 20, LONGEST = 4096 };

void sim_output_init(struct sim_output *output) {
    *output = (struct sim_output){0};
    pthread_mutex_init(&output->lock, NULL);
}

static uint64_t most = UINT64_MAX;

void sim_output_limit(uint64_t bytes) {
    most = bytes;
}

static bool takes_more(void) {
    struct stat file;
    return most == UINT64_MAX || fstat(fileno(stdout), &file) != 0 || (uint64_t)file.st_blocks * 512 <= most;
}

static void put_out(struct sim_output *output) {
    if (takes_more())
        gf_printed(stdout, output->text, output->size, true);
    output->size = 0;
}

void sim_output_flush(struct sim_output *output) {
    if (output->size != 0)
        put_out(output);
    free(output->text);
    pthread_mutex_destroy(&output->lock);
}

static void append(struct sim_output *output, const char *text, size_t size) {
    pthread_mutex_lock(&output->lock);
    if (output->size + size > output->capacity) {
        size_t capacity = (output->size + size) * 2;
        char *grown = realloc(output->text, capacity);
        if (grown != NULL) {
            output->text = grown;
            output->capacity = capacity;
        }
    }
    if (output->size + size <= output->capacity) {
        memcpy(output->text + output->size, text, size);
        output->size += size;
    }
    if (output->size >= FLUSH_AT)
        put_out(output);
    pthread_mutex_unlock(&output->lock);
}

/* Arguments lie one after another as C's default promotions make them, each at a multiple of its size. */
struct arguments {
    struct sim_thread *thread;
    const uint8_t *base;
    size_t offset;
    int32_t count;
};

static uint64_t take(struct arguments *arguments, size_t size) {
    uint64_t value = 0;
    size_t offset = (arguments->offset + size - 1) & ~(size - 1);
    sim_require_reach(arguments->thread, arguments->base + offset, size);
    memcpy(&value, arguments->base + offset, size);
    arguments->offset = offset + size;
    arguments->count++;
    return value;
}

struct text {
    char bytes[LONGEST];
    size_t size;
};

static void put(struct text *text, const char *bytes, size_t size) {
    size_t room = sizeof text->bytes - text->size;
    size_t some = size < room ? size : room;
    memcpy(text->bytes + text->size, bytes, some);
    text->size += some;
}

#define PUT_FORMATTED(text, specification, value)                                                            \
    do {                                                                                                     \
        size_t room_ = sizeof(text)->bytes - (text)->size;                                                   \
        int length_ = snprintf((text)->bytes + (text)->size, room_, specification, value);                   \
        if (length_ > 0)                                                                                     \
            (text)->size += (size_t)length_ < room_ ? (size_t)length_ : room_ - (room_ != 0);                \
    } while (0)

/* The parts of one conversion specification: flags, width and precision as written, `*` replaced by its
 * value. */
struct specification {
    char text[64];
    size_t size;
    size_t longest; /* of text: its precision, or as much as is shown at all */
    bool is_long;
    char conversion;
};

static void keep(struct specification *s, char c) {
    if (s->size < sizeof s->text - 4) /* room for "ll", the conversion, the end */
        s->text[s->size++] = c;
}

/* A width or a precision. More than LONGEST shows nothing more, and takes memory and time. */
static void keep_number(struct specification *s, long value) {
    char number[12];
    long within = value < -LONGEST ? -LONGEST : value > LONGEST ? LONGEST : value;
    snprintf(number, sizeof number, "%d", (int)within);
    for (const char *c = number; *c != '\0'; c++)
        keep(s, *c);
}

/* What follows a '.': nothing is zero, and a number below zero as if there were none. */
static const char *parse_precision(const char *p, struct specification *s, struct arguments *arguments) {
    long precision = 0;
    if (*p == '*') {
        precision = (int)take(arguments, 4);
        p++;
    } else if (*p >= '0' && *p <= '9') {
        char *end;
        precision = strtol(p, &end, 10);
        p = end;
    }
    if (precision >= 0) {
        s->longest = precision < LONGEST - 1 ? (size_t)precision : LONGEST - 1;
        keep(s, '.');
        keep_number(s, precision);
    }
    return p;
}

static const char *parse(const char *p, struct specification *s, struct arguments *arguments) {
    *s = (struct specification){.text = "%", .size = 1, .longest = LONGEST - 1};
    while (*p != '\0' && strchr("-+ #0123456789.*", *p) != NULL) {
        if (*p == '.') {
            p = parse_precision(p + 1, s, arguments);
        } else if (*p == '*') {
            keep_number(s, (int)take(arguments, 4));
            p++;
        } else if (*p >= '1' && *p <= '9') {
            char *end;
            keep_number(s, strtol(p, &end, 10));
            p = end;
        } else {
            keep(s, *p++);
        }
    }
    int longs = 0;
    while (*p != '\0' && strchr("hlLjztq", *p) != NULL) {
        if (*p == 'h')
            keep(s, 'h'); /* hh, h: the value was promoted, the conversion narrows it */
        longs += *p != 'h';
        p++;
    }
    s->is_long = longs != 0; /* long is 64 bits on the device's ABI too */
    s->conversion = *p;
    return *p != '\0' ? p + 1 : p;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
static void convert(struct specification *s, struct arguments *arguments, struct text *text) {
    char c = s->conversion;
    uint64_t bits;
    double real;
    if (c == '\0') {
        put(text, s->text, s->size); /* nothing follows: as it stands */
    } else if (strchr("diouxX", c) != NULL) {
        if (s->is_long) {
            s->text[s->size++] = 'l';
            s->text[s->size++] = 'l';
        }
        s->text[s->size++] = c;
        bits = take(arguments, s->is_long ? 8 : 4);
        if (s->is_long)
            PUT_FORMATTED(text, s->text, (unsigned long long)bits);
        else
            PUT_FORMATTED(text, s->text, (unsigned)bits);
    } else if (strchr("aAeEfFgG", c) != NULL) {
        s->text[s->size++] = c;
        bits = take(arguments, 8);
        memcpy(&real, &bits, sizeof real);
        PUT_FORMATTED(text, s->text, real);
    } else if (c == 'c') {
        s->text[s->size++] = c;
        PUT_FORMATTED(text, s->text, (int)take(arguments, 4));
    } else if (c == 's') {
        s->text[s->size++] = c;
        const char *string = (const char *)take(arguments, 8);
        char copy[LONGEST] = "(null)";
        if (string != NULL)
            sim_take_text(arguments->thread, string, copy, s->longest + 1);
        PUT_FORMATTED(text, s->text, copy);
    } else if (c == 'p') {
        s->text[s->size++] = c;
        PUT_FORMATTED(text, s->text, (void *)take(arguments, 8));
    } else {
        put(text, s->text, s->size); /* unknown: as it stands */
        put(text, &c, 1);
    }
}
#pragma GCC diagnostic pop

int32_t sim_rt_vprintf(struct sim_thread *t, const char *from, const void *values) {
    if (from == NULL)
        return -1;
    struct text text = {.size = 0};
    struct arguments arguments = {t, values, 0, 0};
    char format[LONGEST];
    sim_take_text(t, from, format, sizeof format);
    for (const char *p = format; *p != '\0';) {
        const char *percent = strchr(p, '%');
        size_t plain = percent != NULL ? (size_t)(percent - p) : strlen(p);
        put(&text, p, plain);
        p += plain;
        if (*p == '\0')
            break;
        if (p[1] == '%') {
            put(&text, "%", 1);
            p += 2;
            continue;
        }
        struct specification specification;
        p = parse(p + 1, &specification, &arguments);
        convert(&specification, &arguments, &text);
    }
    append(&sim_cta_of(t)->worker->run->output, text.bytes, text.size);
    return arguments.count;
}
