#include "cubin.h"
#include "extent.h"
#include <elf.h>
#include <stdint.h>
#include <string.h>

static const char SECTION[] = ".gpuferry.ptx";
enum { OS_CUDA = 51, OS_CUDA_LATER = 65, MACHINE_CUDA = 190 };

struct file {
    const char *bytes;
    size_t limit;
    Elf64_Ehdr header;
};

static bool read_header(struct file *file) {
    unsigned char identity[EI_NIDENT];
    if (!sim_extent_holds(file->bytes, file->limit, 0, sizeof identity))
        return false;
    memcpy(identity, file->bytes, sizeof identity);
    if (identity[EI_CLASS] != ELFCLASS64 || identity[EI_DATA] != ELFDATA2LSB ||
        (identity[EI_OSABI] != OS_CUDA && identity[EI_OSABI] != OS_CUDA_LATER) ||
        !sim_extent_holds(file->bytes, file->limit, 0, sizeof file->header))
        return false;
    memcpy(&file->header, file->bytes, sizeof file->header);
    return file->header.e_machine == MACHINE_CUDA && file->header.e_shentsize == sizeof(Elf64_Shdr);
}

static bool read_section(const struct file *file, unsigned index, Elf64_Shdr *section) {
    uint64_t at = file->header.e_shoff + (uint64_t)index * sizeof *section;
    if (index >= file->header.e_shnum || at < file->header.e_shoff ||
        !sim_extent_holds(file->bytes, file->limit, at, sizeof *section))
        return false;
    memcpy(section, file->bytes + at, sizeof *section);
    /* What such a section says of its extent is looked at by nobody, who checked the file before neither. */
    return section->sh_type == SHT_NULL || section->sh_type == SHT_NOBITS ||
           sim_extent_holds(file->bytes, file->limit, section->sh_offset, section->sh_size);
}

bool sim_cubin_content(const void *elf, size_t limit, const void **content, size_t *size) {
    struct file file = {.bytes = elf, .limit = limit};
    Elf64_Shdr names, section;
    if (!read_header(&file) || !read_section(&file, file.header.e_shstrndx, &names) ||
        names.sh_type != SHT_STRTAB) /* nobody makes sure that others are in the file */
        return false;
    for (unsigned i = 0; i < file.header.e_shnum && read_section(&file, i, &section); i++) {
        if (section.sh_type != SHT_PROGBITS || section.sh_name >= names.sh_size ||
            names.sh_size - section.sh_name < sizeof SECTION ||
            memcmp(file.bytes + names.sh_offset + section.sh_name, SECTION, sizeof SECTION) != 0)
            continue;
        *content = file.bytes + section.sh_offset;
        *size = section.sh_size;
        return section.sh_size != 0;
    }
    return false;
}

/* The later of `end` and where `count` things of `each` bytes end; 0: they are not all there. */
static uint64_t extended(const struct file *file, uint64_t end, uint64_t offset, uint64_t count,
                         uint64_t each) {
    if (end == 0 || count > UINT32_MAX || !sim_extent_holds(file->bytes, file->limit, offset, count * each))
        return 0;
    return offset + count * each > end ? offset + count * each : end;
}

size_t sim_cubin_size(const void *elf, size_t limit) {
    struct file file = {.bytes = elf, .limit = limit};
    if (!read_header(&file) || (file.header.e_phnum != 0 && file.header.e_phentsize != sizeof(Elf64_Phdr)))
        return 0;
    uint64_t count = file.header.e_shnum, end = sizeof file.header;
    end = extended(&file, end, file.header.e_shoff, count, sizeof(Elf64_Shdr));
    end = extended(&file, end, file.header.e_phoff, file.header.e_phnum, sizeof(Elf64_Phdr));
    for (uint64_t i = 0; i < count && end != 0; i++) {
        Elf64_Shdr section;
        memcpy(&section, file.bytes + file.header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS)
            end = extended(&file, end, section.sh_offset, section.sh_size, 1);
    }
    for (unsigned i = 0; i < file.header.e_phnum && end != 0; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, file.bytes + file.header.e_phoff + i * sizeof segment, sizeof segment);
        end = extended(&file, end, segment.p_offset, segment.p_filesz, 1);
    }
    return end;
}
