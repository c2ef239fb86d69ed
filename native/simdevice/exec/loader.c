#define _GNU_SOURCE
#include "loader.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

/* Sections are grouped by protection, a page boundary between the groups. */
enum { GROUP_CODE, GROUP_CONST, GROUP_DATA, GROUPS };

struct loading {
    const uint8_t *file;
    size_t size;
    const Elf64_Shdr *sections;
    uint32_t section_count;
    uint8_t **addresses; /* of each section, NULL if not loaded */
    uint8_t *stubs;      /* jumps to functions that a 32-bit displacement does not reach */
    uint32_t stub_count, stub_capacity;
    char *log;
    size_t log_size;
};

static const uint8_t JUMP[6] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip), the address follows */
enum { STUB_SIZE = 16 };

#define FAIL(loading, ...)                                                                                   \
    (snprintf((loading)->log, (loading)->log_size, "kernel object: " __VA_ARGS__), false)

static bool inside(const struct loading *l, uint64_t offset, uint64_t length) {
    return offset <= l->size && length <= l->size - offset;
}

static const char *string_at(const struct loading *l, uint32_t section, uint32_t offset) {
    if (section >= l->section_count || offset >= l->sections[section].sh_size)
        return NULL;
    const char *start = (const char *)l->file + l->sections[section].sh_offset + offset;
    return memchr(start, 0, l->sections[section].sh_size - offset) != NULL ? start : NULL;
}

static bool check_header(struct loading *l) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)l->file;
    if (l->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_type != ET_REL || header->e_machine != EM_X86_64)
        return FAIL(l, "not a relocatable x86-64 ELF file");
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff % 8 != 0 ||
        !inside(l, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)))
        return FAIL(l, "bad section table");
    l->sections = (const Elf64_Shdr *)(l->file + header->e_shoff);
    l->section_count = header->e_shnum;
    for (uint32_t i = 0; i < l->section_count; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if ((s->sh_type != SHT_NOBITS && !inside(l, s->sh_offset, s->sh_size)) || s->sh_size > 1u << 30 ||
            s->sh_addralign > PAGE || (s->sh_addralign & (s->sh_addralign - 1)) != 0)
            return FAIL(l, "bad section %u", i);
    }
    return true;
}

static int group_of(const struct loading *l, uint32_t index) {
    const Elf64_Shdr *s = &l->sections[index];
    const char *name = string_at(l, ((const Elf64_Ehdr *)l->file)->e_shstrndx, s->sh_name);
    if (!(s->sh_flags & SHF_ALLOC) || (name != NULL && strcmp(name, ".eh_frame") == 0))
        return -1;
    if (s->sh_flags & SHF_EXECINSTR)
        return GROUP_CODE;
    return s->sh_flags & SHF_WRITE ? GROUP_DATA : GROUP_CONST;
}

static const Elf64_Sym *symbol_at(const struct loading *l, const Elf64_Shdr *table, uint64_t index) {
    if (index >= table->sh_size / sizeof(Elf64_Sym) || table->sh_offset % 8 != 0)
        return NULL;
    return (const Elf64_Sym *)(l->file + table->sh_offset) + index;
}

static uint32_t count_undefined(const struct loading *l) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->section_count; i++) {
        const Elf64_Sym *symbol;
        if (l->sections[i].sh_type == SHT_SYMTAB)
            for (uint64_t n = 1; (symbol = symbol_at(l, &l->sections[i], n)) != NULL; n++)
                count += symbol->st_shndx == SHN_UNDEF;
    }
    return count;
}

static bool place(struct loading *l, struct sim_object *object, size_t group_start[GROUPS + 1]) {
    size_t offset = 0;
    size_t *offsets = calloc(l->section_count + 1, sizeof *offsets);
    if (offsets == NULL)
        return FAIL(l, "out of memory");
    l->stub_capacity = count_undefined(l);
    for (int group = 0; group < GROUPS; group++) {
        group_start[group] = offset;
        for (uint32_t i = 0; i < l->section_count; i++) {
            if (group_of(l, i) != group)
                continue;
            size_t align = l->sections[i].sh_addralign ? l->sections[i].sh_addralign : 1;
            offset = (offset + align - 1) & ~(align - 1);
            offsets[i] = offset;
            offset += l->sections[i].sh_size;
        }
        if (group == GROUP_CODE) {
            offset = (offset + STUB_SIZE - 1) & ~(size_t)(STUB_SIZE - 1);
            offsets[l->section_count] = offset;
            offset += (size_t)l->stub_capacity * STUB_SIZE;
        }
        offset = (offset + PAGE - 1) & ~(size_t)(PAGE - 1);
    }
    group_start[GROUPS] = offset;
    object->size = offset;
    object->base = mmap(NULL, offset, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (object->base == MAP_FAILED) {
        object->base = NULL;
        free(offsets);
        return FAIL(l, "out of memory");
    }
    for (uint32_t i = 0; i < l->section_count; i++) {
        if (group_of(l, i) < 0)
            continue;
        l->addresses[i] = (uint8_t *)object->base + offsets[i];
        if (l->sections[i].sh_type != SHT_NOBITS)
            memcpy(l->addresses[i], l->file + l->sections[i].sh_offset, l->sections[i].sh_size);
    }
    l->stubs = (uint8_t *)object->base + offsets[l->section_count];
    free(offsets);
    return true;
}

static bool symbol_address(struct loading *l, const Elf64_Shdr *table, const Elf64_Sym *symbol,
                           uint64_t *out) {
    if (symbol->st_shndx == SHN_UNDEF) {
        const char *name = string_at(l, table->sh_link, symbol->st_name);
        void *address = name != NULL ? sim_extern_find(name) : NULL;
        if (address == NULL)
            return FAIL(l, "undefined symbol %s", name != NULL ? name : "?");
        *out = (uint64_t)address;
        return true;
    }
    if (symbol->st_shndx >= l->section_count || l->addresses[symbol->st_shndx] == NULL ||
        symbol->st_value > l->sections[symbol->st_shndx].sh_size)
        return FAIL(l, "symbol in section %u, which is not loaded", symbol->st_shndx);
    *out = (uint64_t)l->addresses[symbol->st_shndx] + symbol->st_value;
    return true;
}

static bool stub_for(struct loading *l, uint64_t target, uint64_t *out) {
    uint8_t *stub = l->stubs;
    for (uint32_t i = 0; i < l->stub_count; i++, stub += STUB_SIZE)
        if (memcmp(stub + sizeof JUMP, &target, 8) == 0) {
            *out = (uint64_t)stub;
            return true;
        }
    if (l->stub_count == l->stub_capacity)
        return FAIL(l, "too many external functions");
    l->stub_count++;
    memcpy(stub, JUMP, sizeof JUMP);
    memcpy(stub + sizeof JUMP, &target, 8);
    *out = (uint64_t)stub;
    return true;
}

static bool store32(struct loading *l, uint8_t *place, int64_t value) {
    int32_t narrow = (int32_t)value;
    if (narrow != value)
        return FAIL(l, "a 32-bit relocation is out of range");
    memcpy(place, &narrow, 4);
    return true;
}

static bool relocate_one(struct loading *l, const Elf64_Shdr *symbols, uint32_t section,
                         const Elf64_Rela *rela) {
    uint32_t type = ELF64_R_TYPE(rela->r_info);
    uint32_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
    uint64_t limit = l->sections[section].sh_size;
    const Elf64_Sym *symbol = symbol_at(l, symbols, ELF64_R_SYM(rela->r_info));
    if (symbol == NULL || rela->r_offset > limit || width > limit - rela->r_offset)
        return FAIL(l, "bad relocation");
    uint64_t address;
    if (!symbol_address(l, symbols, symbol, &address))
        return false;
    uint8_t *place = l->addresses[section] + rela->r_offset;
    uint64_t value = address + (uint64_t)rela->r_addend;
    switch (type) {
    case R_X86_64_64:
        memcpy(place, &value, 8);
        return true;
    case R_X86_64_PC64:
        value -= (uint64_t)place;
        memcpy(place, &value, 8);
        return true;
    case R_X86_64_PLT32:
        if (symbol->st_shndx == SHN_UNDEF && !stub_for(l, address, &address))
            return false;
        return store32(l, place, (int64_t)(address + (uint64_t)rela->r_addend - (uint64_t)place));
    case R_X86_64_PC32:
        return store32(l, place, (int64_t)(value - (uint64_t)place));
    default:
        return FAIL(l, "relocation type %u is not supported", type);
    }
}

static bool relocate(struct loading *l) {
    for (uint32_t i = 0; i < l->section_count; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        if (s->sh_type != SHT_RELA || s->sh_info >= l->section_count || l->addresses[s->sh_info] == NULL)
            continue;
        if (s->sh_link >= l->section_count || s->sh_offset % 8 != 0)
            return FAIL(l, "bad relocation section");
        const Elf64_Rela *rela = (const Elf64_Rela *)(l->file + s->sh_offset);
        for (uint64_t n = 0; n < s->sh_size / sizeof *rela; n++)
            if (!relocate_one(l, &l->sections[s->sh_link], s->sh_info, &rela[n]))
                return false;
    }
    return true;
}

static void *defined(struct loading *l, const char *wanted, uint64_t length) {
    for (uint32_t i = 0; i < l->section_count; i++) {
        const Elf64_Shdr *table = &l->sections[i];
        if (table->sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbol;
        for (uint64_t n = 1; (symbol = symbol_at(l, table, n)) != NULL; n++) {
            const char *name = string_at(l, table->sh_link, symbol->st_name);
            uint32_t section = symbol->st_shndx;
            if (name == NULL || strcmp(name, wanted) != 0 || section == SHN_UNDEF ||
                section >= l->section_count || l->addresses[section] == NULL ||
                symbol->st_value > l->sections[section].sh_size ||
                length > l->sections[section].sh_size - symbol->st_value)
                continue;
            return l->addresses[section] + symbol->st_value;
        }
    }
    return NULL;
}

static bool resolve(struct loading *l, struct sim_object *object) {
    static const char *const entries[] = {"sim_kernel_run_block", "sim_kernel_run_thread",
                                          "sim_kernel_run_warp"};
    void *functions[] = {&object->run_block, &object->run_thread, &object->run_warp};
    const uint32_t *abi = defined(l, "sim_kernel_abi", 4), *form = defined(l, "sim_kernel_form", 4);
    const uint32_t *rows = defined(l, "sim_kernel_rows", 4);
    const uint32_t *quick = defined(l, "sim_kernel_quick", 4), *stack = defined(l, "sim_kernel_stack", 4);
    const uint32_t *local = defined(l, "sim_kernel_local", 4);
    if (abi == NULL || *abi != SIM_KERNEL_ABI || form == NULL || *form > SIM_FORM_WARPS || rows == NULL ||
        *rows > SIM_ROWS_OR_LINES || quick == NULL || stack == NULL || local == NULL)
        return FAIL(l, "made for another kernel ABI");
    object->rows = (enum sim_kernel_rows) * rows;
    object->quick = *quick != 0;
    object->unbounded = *stack >> 31; /* ptx/frames.py */
    object->stack = *stack & INT32_MAX;
    object->local = *local;
    object->form = (enum sim_kernel_form) * form;
    for (int i = SIM_FORM_LOOP; i <= SIM_FORM_WARPS; i++) {
        if (i != (int)object->form && (i != SIM_FORM_WARPS || object->rows == SIM_ROWS_NONE))
            continue;
        void *entry = defined(l, entries[i], 1);
        if (entry == NULL)
            return FAIL(l, "has no entry");
        memcpy(functions[i], &entry, sizeof entry);
    }
    return true;
}

static bool protect(struct loading *l, struct sim_object *object, const size_t group_start[GROUPS + 1]) {
    static const int protection[GROUPS] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int group = 0; group < GROUPS; group++) {
        size_t length = group_start[group + 1] - group_start[group];
        if (length > 0 &&
            mprotect((uint8_t *)object->base + group_start[group], length, protection[group]) != 0)
            return FAIL(l, "cannot protect its memory");
    }
    return true;
}

bool sim_object_load(const void *bytes, size_t size, struct sim_object *object, char *log, size_t log_size) {
    struct loading l = {.file = bytes, .size = size, .log = log, .log_size = log_size};
    size_t group_start[GROUPS + 1];
    *object = (struct sim_object){0};
    if (!check_header(&l))
        return false;
    l.addresses = calloc(l.section_count + 1, sizeof *l.addresses);
    bool loaded = l.addresses != NULL && place(&l, object, group_start) && relocate(&l) &&
                  resolve(&l, object) && protect(&l, object, group_start);
    free(l.addresses);
    if (!loaded)
        sim_object_unload(object);
    return loaded;
}

void sim_object_unload(struct sim_object *object) {
    if (object->base != NULL)
        munmap(object->base, object->size);
    *object = (struct sim_object){0};
}
