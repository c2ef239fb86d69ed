/* Texture and surface references: variables of modules (.texref, .surfref) through which kernels read and
 * write what the program has bound to them. A launch takes along what is bound at that moment. */
#pragma once
#include "module.h"

/* What a launch takes along of the module's references: `count` of them, with references that
 * sim_references_release gives back. */
CUresult sim_references_take(struct sim_module *module, struct sim_bound **bound, uint32_t *count);
void sim_references_release(struct sim_bound *bound, uint32_t count);
/* The reference that a module's variable is, made when it is first asked for. */
CUresult sim_reference_of(struct sim_module *module, const uint8_t *variable, enum sim_view_kind kind,
                          uint64_t *handle);
CUresult sim_reference_check(CUtexref handle);
/* They end with the module. */
void sim_references_close(struct sim_module *module);
