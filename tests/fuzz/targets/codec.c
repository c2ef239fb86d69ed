/* Types that nest in requests, as the API server reads what a guest sent (specs/WIRE.md 11). */
#include "targets.h"

#include "apiserver/_generated/codecs.h"

static int handle(struct gf_decoder *d, unsigned kinds, uint64_t wire, void **driver) {
    *driver = (void *)(uintptr_t)wire;
    d->param_bytes = (uint32_t)(wire >> 32) % 64;
    return wire % 3 == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static int address(struct gf_decoder *d, uint64_t at, uint64_t size, unsigned access) {
    return at % 3 == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static int device(struct gf_decoder *d, int wire, int *driver) {
    *driver = wire;
    return wire % 3 == 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

void fuzz_codec(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    uint8_t kind = (uint8_t)fuzz_take(&input, 1);
    uint64_t count = fuzz_take(&input, 2);
    struct gf_decoder d;
    gf_decoder_begin(&d, input.at, input.left);
    d.handle = handle;
    d.address = address;
    d.device = device;
    int status;
    if (kind % 3 == 0) {
        CUlaunchAttribute *found;
        status = gf_take_CUlaunchAttribute(&d, count, kind & 4, &found);
        volatile unsigned sum = 0;
        for (uint64_t i = 0; status == 0 && found != NULL && i < count; i++) {
            sum += found[i].id;
        }
    } else if (kind % 3 == 1) {
        CUlaunchMemSyncDomainMap *found;
        status = gf_take_CUlaunchMemSyncDomainMap(&d, count, kind & 4, &found);
    } else {
        unsigned options_count;
        CUjit_option *options;
        void **values;
        status = gf_take_CUjit_options(&d, &options_count, &options, &values);
        volatile uintptr_t sum = 0;
        for (unsigned i = 0; status == 0 && i < options_count; i++) {
            sum += options[i] + (uintptr_t)values[i];
        }
    }
    if (status == 0) {
        gf_decoder_done(&d);
    }
    gf_decoder_end(&d);
}
