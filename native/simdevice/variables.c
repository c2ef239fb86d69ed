#include "variables.h"
#include "memory.h"

/* Every variable begins a page: what runs over the end of the last is a fault. */
static uint64_t pages_of(const struct sim_variable_info *variable) {
    return sim_round_up(variable->size ? variable->size : 1, SIM_PAGE);
}

static bool concerns(const struct sim_variable_info *variable, enum sim_placed what, const uint8_t *address) {
    return !address && (what == SIM_PLACED_MODULE || variable->is_managed);
}

CUresult sim_variables_place(const struct sim_image *image, enum sim_placed what, struct sim_device *device,
                             struct sim_context *context, uint8_t **addresses, struct sim_place **place) {
    uint32_t count = sim_image_variable_count(image);
    uint64_t size = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_variable_info *variable = sim_image_variable(image, i);
        if (!concerns(variable, what, addresses[i]))
            continue;
        if (variable->size > device->memory || size > device->memory) /* the sum must not overflow */
            return CUDA_ERROR_OUT_OF_MEMORY;
        size += pages_of(variable);
    }
    if (!size)
        return CUDA_SUCCESS;
    *place = sim_place_take(image, what, size);
    if (!*place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t base = (*place)->base;
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_variable_info *variable = sim_image_variable(image, i);
        if (!concerns(variable, what, addresses[i]))
            continue;
        enum sim_range_kind kind = variable->is_managed ? SIM_RANGE_MANAGED : SIM_RANGE_GLOBAL;
        SIM_TRY(sim_memory_place(kind, device, context, variable->size, base));
        addresses[i] = (uint8_t *)base;
        base += pages_of(variable);
    }
    return CUDA_SUCCESS;
}
