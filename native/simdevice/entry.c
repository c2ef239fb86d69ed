/* CUkernel: a kernel of a library, whatever the context. */
#include "module.h"
#include <stdlib.h>

static void destroy(void *pointer) {
    struct sim_entry *entry = pointer;
    sim_release(entry->library);
    free(entry);
}

/* Library's lock held. */
static CUresult entry_at(struct sim_library *library, uint32_t index, struct sim_entry **out) {
    if (!library->entries[index]) {
        size_t devices = (size_t)sim_device_count();
        struct sim_entry *entry = calloc(1, sizeof *entry + devices * sizeof entry->attributes[0]);
        if (!entry)
            return CUDA_ERROR_OUT_OF_MEMORY;
        entry->library = library;
        entry->index = index;
        entry->info = sim_image_kernel(library->image, index);
        for (size_t i = 0; i < devices; i++)
            entry->attributes[i].max_dynamic_shared = entry->attributes[i].carveout = -1;
        if (!sim_handle_open(entry, SIM_KERNEL, NULL, destroy)) {
            free(entry);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        sim_retain(library);
        library->entries[index] = entry;
    }
    *out = library->entries[index];
    return CUDA_SUCCESS;
}

CUresult sim_library_entry(struct sim_library *library, uint32_t index, struct sim_entry **entry) {
    pthread_mutex_lock(&library->lock);
    CUresult result = entry_at(library, index, entry);
    pthread_mutex_unlock(&library->lock);
    return result;
}
