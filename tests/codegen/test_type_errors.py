"""Mistakes in types that nest are told with place, cause and remedy; so is what cuda.h has otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.compare import check
from codegen.header import find
from codegen.load import load
from codegen.model import SpecError

from .spec_edits import edited

TYPES = "cuda/types.yaml"
SM_COUNT = "smCount: {type: CUexecAffinitySmCount, when: CU_EXEC_AFFINITY_TYPE_SM_COUNT}"
AFFINITY = (
    "execAffinityParams: {kind: array, type: CUexecAffinityParam *, count: numExecAffinityParams, max: 16}"
)

# Text, its replacement; then what is told: line counted from that of the edit, cause, remedy.
MISTAKES = {
    "unknown key": (
        "count: numExecAffinityParams, max: 16",
        "count: numExecAffinityParams, max: 16, maxx: 3",
        (0, "unknown key 'maxx'", "Did you mean 'max'?"),
    ),
    "key of another kind": (
        "val: unsigned int",
        "val: {type: unsigned int, count: x}",
        (
            0,
            "'count' says nothing of a member of kind 'scalar'",
            "Remove it, or choose a kind that has it; 'scalar' takes length, max, min",
        ),
    ),
    "unknown kind": (
        "val: unsigned int",
        "val: {kind: skalar, type: unsigned int}",
        (0, "unknown kind 'skalar'", "Did you mean 'scalar'?"),
    ),
    "unknown type": (
        "val: unsigned int",
        "val: unsigned inn",
        (0, "unknown type 'unsigned inn'", "Add it to specs/cuda/types.yaml"),
    ),
    "enum without values": (
        "val: unsigned int",
        "val: CUlimit",
        (0, "what member 'val' means is not said", "Add 'kind: …' (specs/README.md)"),
    ),
    "kind that does not fit the type": (
        "val: unsigned int",
        "val: {kind: handle, type: unsigned int}",
        (0, "member 'val': 'handle' of type 'unsigned int'", "Choose another kind (specs/README.md)"),
    ),
    "unknown object": (
        "    kern: {type: CUkernel, nullable: true}",
        "    kern: {type: CUkernel, of: kernle, nullable: true}",
        (
            0,
            "member 'kern': unknown object 'kernle'",
            "Known: " + ", ".join(kind.name for kind in load().objects.all),
        ),
    ),
    "neither type nor members": (
        "val: unsigned int",
        "val: {kind: struct}",
        (0, "member 'val': a type of its own, or one by name?", "Give one of 'members' and 'type'"),
    ),
    "no limit": (
        "count: numExecAffinityParams, max: 16",
        "count: numExecAffinityParams",
        (0, "member 'execAffinityParams': there is no limit to it", "Add 'max: …'"),
    ),
    "count by something unknown": (
        "count: numExecAffinityParams, max: 16",
        "count: numParams, max: 16",
        (
            0,
            "member 'execAffinityParams': count uses 'numParams', which is no number beside it",
            "Known: numExecAffinityParams",
        ),
    ),
    "size that is a program": (
        'size: "(height - 1) * pitchInBytes + width * texel(format, numChannels)"',
        "size: max(height)",
        (
            0,
            "member 'devPtr': 'max(height)' is not a number, an argument, or + - * of such",
            "Sizes are numbers, members, + - * and parentheses",
        ),
    ),
    "case that does not say when": (
        SM_COUNT,
        "smCount: CUexecAffinitySmCount",
        (0, "case 'smCount' does not say when it holds", "Add 'when: [ENUMERATORS]'"),
    ),
    "case for a value that the tag never has": (
        SM_COUNT,
        SM_COUNT.replace("CU_EXEC_AFFINITY_TYPE_SM_COUNT", "CU_EXEC_AFFINITY_TYPE_SM"),
        (
            0,
            "member 'smCount': CU_EXEC_AFFINITY_TYPE_SM is not what 'type' allows",
            "Known: CU_EXEC_AFFINITY_TYPE_SM_COUNT",
        ),
    ),
    "value that selects no case": (
        SM_COUNT,
        SM_COUNT.replace("when: CU_EXEC_AFFINITY_TYPE_SM_COUNT", "when: []"),
        (
            -3,
            "member 'param': CU_EXEC_AFFINITY_TYPE_SM_COUNT selects no case",
            "Add it to the 'when' of one, to 'empty' or to 'drop'",
        ),
    ),
    "tag that is not beside it": (
        "      tag: resType",
        "      tag: kind",
        (-1, "member 'res': 'kind' is no enum beside it", "Known: resType"),
    ),
    "type within itself": (
        "val: unsigned int",
        "val: unsigned int\n    more: {kind: array, type: CUexecAffinityParam *, max: 1}",
        (
            0,
            "CUexecAffinitySmCount in CUexecAffinityParam in CUexecAffinitySmCount: without end",
            "Nesting is finite",
        ),
    ),
    "codec of something unknown": (
        "used: [CUlaunchAttribute, CUjit_option]",
        "used: [CUlaunchAttribut, CUjit_option]",
        (0, "unknown type 'CUlaunchAttribut'", "Did you mean 'CUlaunchAttribute'?"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told(mistake: str, tmp_path: Path) -> None:
    old, new, (offset, cause, remedy) = MISTAKES[mistake]
    specs, line = edited(tmp_path, TYPES, old, new)
    with pytest.raises(SpecError) as told:
        load(specs)
    assert str(told.value) == f"specs/{TYPES}:{line + offset}: {cause}\n    {remedy}"


SAY = "Make the line say what cuda.h says"
SPELL = "Spell it as cuda.h does"
HEADER_MISTAKES = {
    "member that is not there": (
        "val: unsigned int",
        "value: unsigned int",
        (0, "CUexecAffinitySmCount has no member 'value'", "There it has val"),
    ),
    "member that is missing": (
        "    gridDimX: {type: unsigned int, min: 1}\n    gridDimY: {type: unsigned int, min: 1}\n"
        "    gridDimZ: {type: unsigned int, min: 1}\n    blockDimX: {type: unsigned int, min: 1}\n"
        "    blockDimY: {type: unsigned int, min: 1}\n    blockDimZ: {type: unsigned int, min: 1}\n"
        "    sharedMemBytes: unsigned int\n    hStream: CUstream\n",
        "    hStream: CUstream\n",
        (
            0,
            "CUlaunchConfig: member 'gridDimX' is not listed",
            "There it has gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, "
            "hStream, attrs, numAttrs",
        ),
    ),
    "members in another order": (
        "    default_: unsigned char\n    remote: unsigned char\n",
        "    remote: unsigned char\n    default_: unsigned char\n",
        (
            0,
            "CUlaunchMemSyncDomainMap: the members stand in another order",
            "There it has default_, remote",
        ),
    ),
    "member of another type": (
        "val: unsigned int",
        "val: int",
        (0, "CUexecAffinitySmCount.val is no int", SAY),
    ),
    "array of another type": (
        "borderColor: {type: float, length: 4}",
        "borderColor: {type: int, length: 4}",
        (0, "CUDA_TEXTURE_DESC.borderColor is no int[4]", SAY),
    ),
    "enumerator of another enum": (
        "  CUexecAffinityType: {wire: u32, allow: CU_EXEC_AFFINITY_TYPE_SM_COUNT}",
        "  CUexecAffinityType:\n    wire: u32\n    allow: CU_EXEC_AFFINITY_TYPE_SM_COUNT\n"
        "    refuse: CU_LIMIT_STACK_SIZE",
        (1, "CU_LIMIT_STACK_SIZE is no enumerator of CUexecAffinityType", SPELL),
    ),
    "enumerator of which nothing is said": (
        ", CU_MEM_LOCATION_TYPE_INVISIBLE",
        "",
        (-2, "CUmemLocationType: CU_MEM_LOCATION_TYPE_INVISIBLE is not listed", "Say what becomes of it"),
    ),
    "flag that is not there": (
        "allow: CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE",
        "allow: CU_MEMCPY_FLAG_PREFER",
        (0, "CU_MEMCPY_FLAG_PREFER is not in cuda.h", SPELL),
    ),
    "error that is none": (
        "type: CUctxCigParam *, otherwise: CUDA_ERROR_NOT_SUPPORTED",
        "type: CUctxCigParam *, otherwise: CUDA_ERROR_NOT_CARRIED",
        (0, "CUDA_ERROR_NOT_CARRIED is no CUresult", SPELL),
    ),
    "option that is not listed": (
        "      CU_JIT_FAST_COMPILE: ignored\n",
        "",
        (-18, "CUjit_option: CU_JIT_FAST_COMPILE is not listed", "Say what becomes of it"),
    ),
    "type that is not as wide as a pointer": (
        "opaque: [CUgraphDeviceNode, ",
        "opaque: [CUdevprop, CUgraphDeviceNode, ",
        (0, "CUdevprop is not as wide as a pointer", SAY),
    ),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("mistake", HEADER_MISTAKES)
def test_difference_from_the_header_is_told(mistake: str, tmp_path: Path) -> None:
    old, new, (offset, cause, remedy) = HEADER_MISTAKES[mistake]
    specs, line = edited(tmp_path, TYPES, old, new)
    assert check(load(specs), find(None)) == [f"specs/{TYPES}:{line + offset}: {cause}\n    {remedy}"]
