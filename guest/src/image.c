#include "image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "wire/fatbin.h"
#include "wire/readable.h"

#define LARGEST (UINT64_C(1) << 40) /* bytes: beyond it, a length is nonsense */

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *rest;
};

/* Whether what was made for that variant of an architecture runs on the device: sm_90a on no other
 * capability, sm_100f on its own generation. */
static int variant_fits(const struct gf_fatbin_entry *entry, const struct gf_target *target) {
    if ((entry->flags & GF_FATBIN_EXACT) != 0) {
        return entry->capability == target->capability;
    }
    return (entry->flags & GF_FATBIN_FAMILY) == 0 || entry->capability / 10 == target->capability / 10;
}

/* How well an entry suits the device; 0: not at all. Machine code for this very chip, then for an older one
 * of the same generation, then the newest text that can still be compiled for it. */
static uint32_t suitability(const struct gf_fatbin_entry *entry, const struct gf_target *target) {
    if (entry->capability > target->capability || !variant_fits(entry, target)) {
        return 0;
    }
    if (entry->kind == GF_FATBIN_PTX && (target->kinds & GF_IMAGE_PTX) != 0) {
        return 1 + entry->capability;
    }
    if (entry->kind == GF_FATBIN_ELF && (target->kinds & GF_IMAGE_SASS) != 0 &&
        entry->capability / 10 == target->capability / 10) {
        return 0x10000 + entry->capability;
    }
    return 0;
}

/* The header of a fatbin; false if it is none, or not all of it can be read. */
static int take_container(const void *data, struct gf_fatbin *container) {
    if (!gf_readable(data, sizeof *container)) {
        return 0;
    }
    memcpy(container, data, sizeof *container);
    return container->magic == GF_FATBIN_MAGIC && container->header_size >= sizeof *container &&
           container->size < LARGEST && gf_readable(data, container->header_size + container->size);
}

static CUresult pick_entry(const char *data, const struct gf_target *target, struct gf_image *picked) {
    struct gf_fatbin container;
    if (!take_container(data, &container)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const char *start = data + container.header_size, *best = NULL;
    uint32_t best_score = 0;
    uint64_t best_size = 0;
    for (uint64_t at = 0;
         container.size - at >= sizeof(struct gf_fatbin_entry);) { /* `at` never passes the end */
        struct gf_fatbin_entry entry;
        memcpy(&entry, start + at, sizeof entry);
        uint64_t left = container.size - at;
        if (entry.header_size < sizeof entry || entry.header_size > left ||
            entry.stored > left - entry.header_size) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        uint32_t score = suitability(&entry, target);
        if (score > best_score) {
            best_score = score;
            best = start + at;
            best_size = entry.header_size + entry.stored;
        }
        at += entry.header_size + entry.stored;
    }
    if (best == NULL) {
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    struct gf_fatbin single = {GF_FATBIN_MAGIC, container.version, sizeof single, best_size};
    char *made = malloc(sizeof single + best_size);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(made, &single, sizeof single);
    memcpy(made + sizeof single, best, best_size);
    *picked = (struct gf_image){made, sizeof single + best_size, made};
    return CUDA_SUCCESS;
}

/* The image reaches at least to the end of this part; false if that cannot be read. */
static int extend(const char *data, uint64_t *end, uint64_t offset, uint64_t size) {
    if (offset >= LARGEST || size >= LARGEST) {
        return 0;
    }
    if (offset + size <= *end) {
        return 1;
    }
    int there = gf_readable(data + *end, offset + size - *end);
    *end = offset + size;
    return there;
}

/* An ELF image comes without its size: it ends where the last of its parts does. Whether it holds machine
 * code for the device, or is what cuLinkComplete made there, only the server's driver knows. */
static CUresult pick_elf(const char *data, struct gf_image *picked) {
    Elf64_Ehdr header;
    if (!gf_readable(data, sizeof header)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    memcpy(&header, data, sizeof header);
    uint64_t end = sizeof header;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
        !extend(data, &end, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr)) ||
        !extend(data, &end, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr))) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    for (unsigned i = 0; i < header.e_shnum && header.e_shentsize == sizeof(Elf64_Shdr); i++) {
        Elf64_Shdr section;
        memcpy(&section, data + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !extend(data, &end, section.sh_offset, section.sh_size)) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    for (unsigned i = 0; i < header.e_phnum && header.e_phentsize == sizeof(Elf64_Phdr); i++) {
        Elf64_Phdr segment;
        memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
        if (!extend(data, &end, segment.p_offset, segment.p_filesz)) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    *picked = (struct gf_image){data, end, NULL};
    return CUDA_SUCCESS;
}

static int is_text(const char *data) {
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '\0') {
            return i > 0;
        }
        if (c >= 0x7f || (c < 0x20 && strchr("\t\r\n\f\v", c) == NULL)) {
            return 0;
        }
    }
    return 1;
}

/* A fatbin that holds nothing. */
static CUresult pick_nothing(struct gf_image *picked) {
    static const struct gf_fatbin nothing = {GF_FATBIN_MAGIC, 1, sizeof nothing, 0};
    char *made = malloc(sizeof nothing);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(made, &nothing, sizeof nothing);
    *picked = (struct gf_image){made, sizeof nothing, made};
    return CUDA_SUCCESS;
}

/* Separate compilation: `data` holds what nvcc linked, which is machine code only. Where that does not suit
 * the device, it is the driver that links, from what the list holds: all of it is shipped (WIRE.md 7, link
 * set). */
static CUresult pick_link_set(const void *const *list, const struct gf_target *target,
                              struct gf_image *picked) {
    struct gf_link_set head = {.magic = GF_LINK_SET_MAGIC};
    struct gf_image set = {0};
    while (list[head.count] != NULL) {
        head.count++;
    }
    size_t size = sizeof head + head.count * sizeof(uint64_t);
    CUresult result = CUDA_SUCCESS;
    int any = 0;
    char *all = malloc(size);
    for (uint32_t i = 0; i < head.count && result == CUDA_SUCCESS && all != NULL; i++) {
        result = pick_entry(list[i], target, &set);
        any |= result == CUDA_SUCCESS;
        if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) { /* it may be a library that the driver has a text of */
            result = pick_nothing(&set);
        }
        if (result == CUDA_SUCCESS) {
            uint64_t offset = (size + 7) / 8 * 8;
            char *grown = realloc(all, offset + set.size);
            if (grown == NULL) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
            } else {
                all = grown;
                memset(all + size, 0, offset - size);
                memcpy(all + sizeof head + i * sizeof offset, &offset, sizeof offset);
                memcpy(all + offset, set.data, set.size);
                size = offset + set.size;
            }
            free(set.made);
        }
    }
    if (all == NULL || result != CUDA_SUCCESS || !any) {
        free(all);
        return all == NULL              ? CUDA_ERROR_OUT_OF_MEMORY
               : result != CUDA_SUCCESS ? result
                                        : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    memcpy(all, &head, sizeof head);
    *picked = (struct gf_image){all, size, all};
    return CUDA_SUCCESS;
}

static CUresult pick_wrapped(const struct wrapper *wrapper, const struct gf_target *target,
                             struct gf_image *picked) {
    CUresult result =
        wrapper->data == NULL ? CUDA_ERROR_NO_BINARY_FOR_GPU : pick_entry(wrapper->data, target, picked);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && wrapper->version == 2 && wrapper->rest != NULL) {
        result = pick_link_set(wrapper->rest, target, picked);
    }
    return result;
}

CUresult gf_image_pick(const void *image, const struct gf_target *target, struct gf_image *picked) {
    uint32_t magic;
    if (is_text(image)) {
        *picked = (struct gf_image){image, strlen(image) + 1, NULL};
        return CUDA_SUCCESS;
    }
    memcpy(&magic, image, sizeof magic);
    if (magic == GF_WRAPPER_MAGIC) {
        struct wrapper wrapper;
        memcpy(&wrapper, image, sizeof wrapper);
        return pick_wrapped(&wrapper, target, picked);
    }
    if (magic == GF_FATBIN_MAGIC) {
        return pick_entry(image, target, picked);
    }
    return memcmp(image, ELFMAG, SELFMAG) == 0 ? pick_elf(image, picked) : CUDA_ERROR_INVALID_IMAGE;
}

const void *gf_image_unwrap(const void *image, size_t *size) {
    struct wrapper wrapper;
    struct gf_fatbin container;
    if (*size < sizeof wrapper || !gf_readable(image, sizeof wrapper)) {
        return image;
    }
    memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.magic != GF_WRAPPER_MAGIC || wrapper.data == NULL) {
        return wrapper.magic == GF_WRAPPER_MAGIC ? NULL : image;
    }
    if (!take_container(wrapper.data, &container)) {
        return NULL;
    }
    *size = container.header_size + container.size;
    return wrapper.data;
}

static int parse_kernel(struct gf_kernel_info *kernel, uint32_t devices, char **at, char *end) {
    struct gf_kernel header;
    if ((size_t)(end - *at) < sizeof header) {
        return 0;
    }
    memcpy(&header, *at, sizeof header);
    size_t params = header.param_count * sizeof(struct gf_kernel_param);
    size_t name = (header.name_size + 3u) / 4 * 4;
    if ((size_t)(end - *at) - sizeof header < params + name) {
        return 0;
    }
    memcpy(kernel->attributes, header.attributes, sizeof kernel->attributes);
    for (uint32_t i = 0; i < devices * GF_SETTINGS; i++) {
        const uint32_t setting = i % GF_SETTINGS;
        atomic_init(&kernel->settings[i], setting == GF_SETTING_LOADED ? 0 : header.attributes[setting]);
    }
    kernel->param_count = header.param_count;
    kernel->params = (const struct gf_kernel_param *)(*at + sizeof header);
    for (unsigned i = 0; i < header.param_count; i++) {
        uint64_t last = (uint64_t)kernel->params[i].offset + kernel->params[i].size;
        if (last > 32764) {
            return 0;
        }
        kernel->param_bytes = last > kernel->param_bytes ? (uint32_t)last : kernel->param_bytes;
    }
    kernel->name = strndup(*at + sizeof header + params, header.name_size);
    if (kernel->name == NULL) {
        return 0;
    }
    *at += sizeof header + params + name;
    return 1;
}

struct gf_kernel_table *gf_kernel_table_parse(char *data, size_t size, uint32_t count, uint32_t devices) {
    if (count > size / sizeof(struct gf_kernel)) {
        return NULL;
    }
    struct gf_kernel_table *table = calloc(1, sizeof *table);
    struct gf_kernel_info *kernels = calloc(count + 1, sizeof *kernels);
    const size_t row = (size_t)devices * GF_SETTINGS;
    _Atomic int *settings = calloc((count + 1) * row, sizeof *settings);
    char *at = data, *end = data + size;
    uint32_t done = 0;
    while (table != NULL && kernels != NULL && settings != NULL && done < count) {
        kernels[done].settings = settings + done * row;
        if (!parse_kernel(&kernels[done], devices, &at, end)) {
            break;
        }
        done++;
    }
    if (table == NULL || kernels == NULL || settings == NULL || done < count) {
        for (uint32_t i = 0; kernels != NULL && i < done; i++) {
            free(kernels[i].name);
        }
        free(table);
        free(kernels);
        free((void *)settings);
        return NULL;
    }
    *table = (struct gf_kernel_table){count, kernels, settings, data};
    return table;
}

void gf_kernel_table_free(struct gf_kernel_table *table) {
    if (table != NULL) {
        for (uint32_t i = 0; i < table->count; i++) {
            free(table->kernels[i].name);
        }
        free(table->storage);
        free(table->kernels);
        free((void *)table->settings);
        free(table);
    }
}

int gf_kernel_table_find(const struct gf_kernel_table *table, const char *name) {
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->kernels[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}
