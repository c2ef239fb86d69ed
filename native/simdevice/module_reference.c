/* References by the names of a module's variables. */
#include "reference.h"

static CUresult of_module(uint64_t *handle, CUmodule given, const char *name, enum sim_view_kind kind) {
    struct sim_context *context;
    uint32_t index;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(handle && name && *name);
    struct sim_module *module = sim_acquire(SIM_HANDLE(given), SIM_MODULE);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_image_find_reference(module->image, name, kind, &index)
                          ? sim_reference_of(module, module->globals[index], kind, handle)
                          : CUDA_ERROR_NOT_FOUND;
    sim_release(module);
    return result;
}

CUresult cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name) {
    return of_module((uint64_t *)reference, module, name, SIM_VIEW_TEXTURE);
}

CUresult cuModuleGetSurfRef(CUsurfref *reference, CUmodule module, const char *name) {
    return of_module((uint64_t *)reference, module, name, SIM_VIEW_SURFACE);
}

/* A kernel reads through its module's references anyway. */
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference) {
    struct sim_function *found;
    SIM_TRY(sim_function_acquire(function, &found));
    sim_release(found);
    SIM_REQUIRE(unit == CU_PARAM_TR_DEFAULT);
    return sim_reference_check(reference);
}
