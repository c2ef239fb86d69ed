/* A library for ctypes: what goes in on the guest's side and comes out on the server's. */
#include "codec_probe.h"

int probe_value(const char *name) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (strcmp(values[i].name, name) == 0) {
            return values[i].value;
        }
    }
    abort();
}

static const struct type *find(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    abort();
}

int probe_encode(const char *name, const void *value, uint64_t count, int nullable, void *encoding,
                 size_t *size) {
    struct gf_bytes behind;
    gf_bytes_begin(&behind);
    int result = find(name)->append(&behind, value, count, nullable);
    *size = behind.size;
    memcpy(encoding, behind.data, behind.size);
    gf_bytes_end(&behind);
    return result;
}

int probe_options(uint64_t count, const CUjit_option *options, void *const *values, void *encoding,
                  size_t *size) {
    struct gf_bytes behind;
    gf_bytes_begin(&behind);
    int result = gf_append_CUjit_options(&behind, count, options, values);
    *size = behind.size;
    memcpy(encoding, behind.data, behind.size);
    gf_bytes_end(&behind);
    return result;
}

struct gf_decoder *probe_begin(const void *encoding, size_t size) {
    struct gf_decoder *d = malloc(sizeof *d);
    begin(d, encoding, size);
    return d;
}

/* What was decoded stays until it is given back. */
struct gf_decoder *probe_decode(const char *name, const void *encoding, size_t size, uint64_t count,
                                int nullable, void **found, int *status, const char **why) {
    struct gf_decoder *d = probe_begin(encoding, size);
    *status = find(name)->take(d, count, nullable, found);
    if (*status == 0) {
        *status = gf_decoder_done(d);
    }
    *why = d->why;
    return d;
}

void probe_end(struct gf_decoder *d) {
    gf_decoder_end(d);
    free(d);
}
