#include "wire/image_check.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "gpuferry/frames.h"
#include "wire/fatbin.h"

#define LARGEST (UINT64_C(256) << 20) /* bytes that the entries of an image may expand to */

static const char SIMULATED_LINK[8] = "GFSIMLNK", LIBRARY[8] = "!<arch>\n";

struct member {
    char name[16], times[32], size[10], end[2];
};

struct bytes {
    const char *at;
    uint64_t size;
};

static bool has_magic(struct bytes image, const void *magic, size_t size) {
    return image.size >= size && memcmp(image.at, magic, size) == 0;
}

/* `count` things of `each` bytes from `offset` on. */
static bool holds(struct bytes image, uint64_t offset, uint64_t count, uint64_t each) {
    return offset <= image.size && (each == 0 || count <= (image.size - offset) / each);
}

static bool is_string_table(struct bytes image, const Elf64_Shdr *section) {
    return section->sh_type != SHT_STRTAB || section->sh_size == 0 ||
           image.at[section->sh_offset + section->sh_size - 1] == '\0';
}

static const char *elf_fault(struct bytes image) {
    Elf64_Ehdr header;
    if (image.size < sizeof header) {
        return "its ELF header is cut short";
    }
    memcpy(&header, image.at, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
        return "it is no 64-bit ELF file";
    }
    if ((header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)) ||
        !holds(image, header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr)) ||
        (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr)) ||
        !holds(image, header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr)) ||
        (header.e_shnum != 0 && header.e_shstrndx >= header.e_shnum)) {
        return "the tables of its ELF file lie outside it";
    }
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, image.at + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS &&
            (!holds(image, section.sh_offset, section.sh_size, 1) || !is_string_table(image, &section))) {
            return "a section of its ELF file lies outside it";
        }
        if (i == header.e_shstrndx && section.sh_type != SHT_STRTAB) {
            return "the names of its ELF file's sections are none";
        }
    }
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, image.at + header.e_phoff + i * sizeof segment, sizeof segment);
        if (!holds(image, segment.p_offset, segment.p_filesz, 1)) {
            return "a segment of its ELF file lies outside it";
        }
    }
    return NULL;
}

static const char *entry_fault(struct bytes left, struct gf_fatbin_entry *entry, uint64_t *expanded) {
    if (left.size < sizeof *entry) {
        return "an entry of its fatbin is cut short";
    }
    memcpy(entry, left.at, sizeof *entry);
    if (entry->header_size < sizeof *entry || !holds(left, entry->header_size, entry->stored, 1) ||
        entry->compressed > entry->stored) {
        return "an entry of its fatbin has a wrong size";
    }
    if ((entry->flags & GF_FATBIN_COMPRESSED) == 0) {
        struct bytes payload = {left.at + entry->header_size, entry->stored};
        return has_magic(payload, ELFMAG, SELFMAG) ? elf_fault(payload) : NULL;
    }
    if (entry->expanded > LARGEST - *expanded) {
        return "its fatbin expands to more than 256 MiB";
    }
    *expanded += entry->expanded;
    return NULL;
}

static const char *container_fault(struct bytes image, uint64_t *expanded) {
    struct gf_fatbin container;
    if (image.size < sizeof container) {
        return "its fatbin is cut short";
    }
    memcpy(&container, image.at, sizeof container);
    if (container.magic != GF_FATBIN_MAGIC || container.header_size < sizeof container) {
        return "its fatbin has no valid header";
    }
    if (!holds(image, container.header_size, container.size, 1)) {
        return "its fatbin is cut short";
    }
    struct bytes left = {image.at + container.header_size, container.size};
    while (left.size > 0) {
        struct gf_fatbin_entry entry;
        const char *fault = entry_fault(left, &entry, expanded);
        if (fault != NULL) {
            return fault;
        }
        left.at += entry.header_size + entry.stored;
        left.size -= entry.header_size + entry.stored;
    }
    return NULL;
}

static const char *link_set_fault(struct bytes image) {
    struct gf_link_set head;
    uint64_t expanded = 0;
    if (image.size < sizeof head) {
        return "its link set is cut short";
    }
    memcpy(&head, image.at, sizeof head);
    if (head.count == 0 || !holds(image, sizeof head, head.count, sizeof(uint64_t))) {
        return "its link set is cut short";
    }
    for (uint32_t i = 0; i < head.count; i++) {
        uint64_t offset;
        memcpy(&offset, image.at + sizeof head + i * sizeof offset, sizeof offset);
        if (offset > image.size || offset % 8 != 0) {
            return "a part of its link set lies outside it";
        }
        const char *fault =
            container_fault((struct bytes){image.at + offset, image.size - offset}, &expanded);
        if (fault != NULL) {
            return fault;
        }
    }
    return NULL;
}

static const char *library_fault(struct bytes image) {
    uint64_t at = sizeof LIBRARY;
    while (image.size - at >= sizeof(struct member)) {
        struct member member;
        uint64_t size = 0;
        memcpy(&member, image.at + at, sizeof member);
        for (size_t i = 0; i < sizeof member.size && member.size[i] >= '0' && member.size[i] <= '9'; i++) {
            size = size * 10 + (uint64_t)(member.size[i] - '0');
        }
        at += sizeof member;
        if (memcmp(member.end, "`\n", 2) != 0 || !holds(image, at, size, 1)) {
            return "a member of its library lies outside it";
        }
        struct bytes inside = {image.at + at, size};
        const char *fault = has_magic(inside, ELFMAG, SELFMAG) ? elf_fault(inside) : NULL;
        if (fault != NULL) {
            return fault;
        }
        at += size + size % 2;
        if (at > image.size) {
            return NULL; /* the last one need not be padded */
        }
    }
    return NULL;
}

const char *gf_image_fault(const void *data, size_t size, int is_input) {
    static const uint32_t wrapper = GF_WRAPPER_MAGIC, container = GF_FATBIN_MAGIC,
                          link_set = GF_LINK_SET_MAGIC;
    const struct bytes image = {data, size};
    uint64_t expanded = 0;
    if (has_magic(image, &wrapper, sizeof wrapper)) {
        return "it is a fatbin wrapper, which only names an address";
    }
    if (has_magic(image, SIMULATED_LINK, sizeof SIMULATED_LINK)) {
        return "it is the inside of a linked image, without the ELF file around it";
    }
    if (has_magic(image, &link_set, sizeof link_set)) {
        return is_input ? "a link set is no input of a link" : link_set_fault(image);
    }
    if (has_magic(image, &container, sizeof container)) {
        return container_fault(image, &expanded);
    }
    if (has_magic(image, ELFMAG, SELFMAG)) {
        return elf_fault(image);
    }
    if (has_magic(image, LIBRARY, sizeof LIBRARY)) {
        return is_input ? library_fault(image) : "a library is only an input of a link";
    }
    return NULL;
}
