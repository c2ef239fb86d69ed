"""Every mistake in the spec is told with its place, its cause and its remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.compare import check
from codegen.header import find
from codegen.load import load
from codegen.model import SpecError
from tests.helpers.spec_text import entry

from .spec_edits import edited, shown

DRIVER = "cuda/driver"
NEXT_OF_SESSION = min({*range(1, 256)} - {variant.id for variant in load().libraries[1].variants})
SESSION = "gpuferry/session.yaml"
RESULTS = "cuda/results.yaml"
EVENT_QUERY = "      - symbol: cuEventQuery\n        since: 2000\n        id: 472\n"
EVENT_CREATE = (
    "        signature: CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)\n"
    "        class: async\n        needs: {}\n"
)
RDMA = "        without: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED\n"
WITHOUT = f"        result: CUDA_ERROR_NOT_SUPPORTED\n{RDMA}"
FENCE = "Fence(void)\n        class: async\n        server: generated\n        override: {server: [call]}\n"

# In an expected text: a line, counted from that of the edit.
RELATIVE = re.compile(r"\{([+-]\d+)\}")

# File, text, its replacement; then what is told: line counted from that of the edit, cause, remedy.
MISTAKES = {
    "unknown key": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY + "        blokking: true\n",
        (3, "unknown key 'blokking'", "Did you mean 'blocking'?"),
    ),
    "an owner's context without an object": (
        DRIVER,
        EVENT_CREATE.format("context"),
        EVENT_CREATE.format("owner"),
        (
            -3,
            "cuEventCreate: 'needs: owner', but no generated code looks up an object that has one",
            "Write 'needs: context'",
        ),
    ),
    "unknown key without a near one": (
        "cuda/device.yaml",
        "overrides:",
        "zzz: 1\noverrides:",
        (0, "unknown key 'zzz'", "Known here: overrides"),
    ),
    "unknown key of a result": (
        RESULTS,
        'text: "out of memory"}',
        'text: "out of memory", destroy: header}',
        (0, "unknown key 'destroy'", "Did you mean 'destroys'?"),
    ),
    "result whose end nobody knows": (
        RESULTS,
        'text: "misaligned address", destroys: header}',
        'text: "misaligned address", destroys: heder}',
        (0, "unknown destroys 'heder'", "Did you mean 'header'?"),
    ),
    "text that is no C": (
        RESULTS,
        'text: "out of memory"}',
        'text: "out of\\tmemory"}',
        (0, "a text that does not go into C as it is", "Leave out quotes and backslashes"),
    ),
    "missing id": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY.replace("        id: 472\n", ""),
        (0, "missing key 'id'", "Add 'id: …'"),
    ),
    "what is refused for no reason": (
        DRIVER,
        WITHOUT,
        "        result: CUDA_ERROR_NOT_SUPPORTED\n",
        (
            -7,
            "cuFlushGPUDirectRDMAWrites: it is refused, and nobody says why",
            "Add 'why: …', or 'without: …' where a device without that feature says the same",
        ),
    ),
    "what is carried and refused": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY + "        why: it is a question\n",
        (0, "cuEventQuery: 'why' is given, but it is carried", "Remove 'why'"),
    ),
    "what is refused and quiet": (
        DRIVER,
        WITHOUT,
        WITHOUT.replace("without: ", "why: it is there\n        quiet: "),
        (-7, "cuFlushGPUDirectRDMAWrites: 'quiet' is given, but it is refused", "Remove 'quiet'"),
    ),
    "what a device is not said to lack": (
        DRIVER,
        "without: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED",
        "without: CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH",
        (
            -8,
            "cuFlushGPUDirectRDMAWrites: 'without' names CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, "
            "which the device is not said to lack",
            "Add it to 'overrides' in device.yaml, or name the feature",
        ),
    ),
    "key given twice": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY + "        since: 3000\n",
        (3, "'since' is given twice", "Remove one; the first is on line {+1}"),
    ),
    "unknown class": (
        SESSION,
        "signature: void sessionFence(void)\n        class: async",
        "signature: void sessionFence(void)\n        class: asink",
        (1, "unknown class 'asink'", "Did you mean 'async'?"),
    ),
    "unknown kind": (
        DRIVER,
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: scalar}",
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: skalar}",
        (1, "unknown kind 'skalar'", "Did you mean 'scalar'?"),
    ),
    "key of another kind": (
        DRIVER,
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: scalar}",
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: scalar, access: read}",
        (
            1,
            "'access' says nothing of an argument of kind 'scalar'",
            "Remove it, or choose a kind that has it; 'scalar' takes clamp, max, min",
        ),
    ),
    "argument that is not there": (
        DRIVER,
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: scalar}",
        "limit: {kind: enum}\n          valeu: {kind: scalar}",
        (1, "unknown argument 'valeu'", "Did you mean 'value'?"),
    ),
    "argument without meaning": (
        DRIVER,
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}\n          value: {kind: scalar}",
        "limit: {kind: enum, max: CU_LIMIT_MAX - 1}",
        (0, "argument 'value' has no meaning", "Add 'value: {kind: …}'"),
    ),
    "number that is text": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY.replace("2000", "two thousand"),
        (1, "expected a number", "Write a number here"),
    ),
    "signature of another symbol": (
        SESSION,
        "void sessionFence(void)",
        "void sessionFense(void)",
        (0, "the signature is of 'sessionFense', the symbol is 'sessionFence'", "Make them the same"),
    ),
    "not a prototype": (
        SESSION,
        "void sessionFence(void)",
        "sessionFence",
        (
            0,
            "signature is not a C prototype: 'sessionFence'",
            "Write it as cuda.h does: CUresult name(type name, …)",
        ),
    ),
    "not YAML": (
        SESSION,
        "library: session",
        "library: [session",
        (1, "not YAML: did not find expected ',' or ']'", "Check indentation, quotes and colons"),
    ),
    "reused id": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY.replace("472", "471"),
        (
            0,
            "cuEventQuery: id 471 is taken by cuEventCreate (specs/cuda/driver/event.yaml:{-17})",
            "Use 472, the next free one; ids are never reused",
        ),
    ),
    "retired id": (
        SESSION,
        "ids: [1, 255]\n",
        "ids: [1, 255]\nretired: [1, 250]\n",
        (
            6,
            "sessionClose: id 1 is retired",
            f"Use {NEXT_OF_SESSION}, the next free one; ids are never reused",
        ),
    ),
    "id of another library": (
        SESSION,
        "        id: 4\n",
        "        id: 4000\n",
        (-2, "sessionFence: id 4000 is outside 1…255", "Take one from 'codegen next-id'"),
    ),
    "size of something unknown": (
        SESSION,
        "data: {kind: out, size: rows * width}\n\n  sessionCopy:",
        "data: {kind: out, size: rows * depth}\n\n  sessionCopy:",
        (
            0,
            "sessionCopyOut(data): size uses 'depth', which is no number given",
            "Known: ['pitch', 'rows', 'width']",
        ),
    ),
    "size that is a program": (
        SESSION,
        "data: {kind: out, size: rows * width}\n\n  sessionCopy:",
        "data: {kind: out, size: max(rows)}\n\n  sessionCopy:",
        (
            0,
            "sessionCopyOut(data): 'max(rows)' is not a number, an argument, or + - * of such",
            "Sizes are numbers, arguments, + - * and parentheses",
        ),
    ),
    "via something without a message": (
        DRIVER,
        "via: [cuCtxSynchronize]",
        "via: [cuInit]",
        (
            -8,
            "cuCtxSynchronize_v2: via 'cuInit', which is no operation with a message",
            "Name one that has 'server'",
        ),
    ),
    "stream that nobody thought of while it is captured": (
        DRIVER,
        "        capture: stream\n        blocking: true",
        "        blocking: true",
        (
            -7,
            "cuStreamSynchronize: nobody says what it means while a stream is captured",
            "Add 'capture: …', one of free, node, unsafe, copy, stream, event, context",
        ),
    ),
    "unknown object": (
        SESSION,
        "library: {kind: handle, of: library}",
        "library: {kind: handle, of: book}",
        (
            0,
            "sessionGetModule(library): unknown object 'book'",
            "Known: context, module, library, kernel, function, stream, event, memory_pool, link, "
            "memory_allocation, graph, graph_node, graph_exec, user_object, array, texture_object, "
            "surface_object, mipmapped_array, texture_reference, surface_reference, green_context",
        ),
    ),
    "nothing said of what it leaves behind": (
        SESSION,
        f"{FENCE}        replay: none\n",
        FENCE,
        (
            -3,
            "sessionFence: what it leaves behind is not said",
            "Add 'replay: …': none, create, destroy, {set: ARG, by: [ARGS]}, {add: ARG} or custom",
        ),
    ),
    "unknown way of leaving something behind": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: creates",
        (0, "unknown lasting 'creates'", "Did you mean 'create'?"),
    ),
    "something set, but not on what": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: set",
        (0, "'set' without what is set", "Write {set: ARG, by: [ARGS]}"),
    ),
    "something added, but not to what": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: add",
        (0, "'add' without what is added to", "Write {add: ARG}"),
    ),
    "something added to what it does not use": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: {add: name}",
        (0, "sessionGetGlobal: 'name' is no handle that it uses", "Known: context, owner"),
    ),
    "set without what tells changes apart": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: {set: owner}",
        (0, "missing key 'by'", "Add 'by: …'"),
    ),
    "set on something that is no handle": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: {set: name, by: [name]}",
        (0, "sessionGetGlobal: 'name' is no handle that it uses", "Known: context, owner"),
    ),
    "set by something that does not travel": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: {set: owner, by: [address]}",
        (0, "sessionGetGlobal: 'address' does not travel to the server", "Known: owner, name"),
    ),
    "creates nothing": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "replay: create",
        (0, "sessionGetGlobal: it does not create one handle", "Mark one argument 'use: create'"),
    ),
    "options whose number is not said": (
        DRIVER,
        "options: {kind: options, count: numOptions, values: optionValues}",
        "options: {kind: options, values: optionValues}",
        (
            0,
            "cuLinkCreate_v2(options): how many options there are, or their values, is not said",
            "Give 'count' and 'values': the arguments that hold them, of kind 'options' too",
        ),
    ),
    "options whose values are something else": (
        DRIVER,
        "options: {kind: options, count: numOptions, values: optionValues}",
        "options: {kind: options, count: numOptions, values: stateOut}",
        (
            0,
            "cuLinkCreate_v2(options): how many options there are, or their values, is not said",
            "Give 'count' and 'values': the arguments that hold them, of kind 'options' too",
        ),
    ),
    "a number of options without a list": (
        DRIVER,
        "          flags: {kind: flags, allow: [CU_STREAM_NON_BLOCKING]}\n          priority: {kind: scalar,",
        "          flags: {kind: options}\n          priority: {kind: scalar,",
        (
            0,
            "cuStreamCreateWithPriority(flags): no list of options has 'unsigned int'",
            "Known: CUjit_option; say 'count' and 'values'",
        ),
    ),
    "kept, but without a message": (
        DRIVER,
        "via: [cuCtxSynchronize]",
        "via: [cuCtxSynchronize]\n        replay: none",
        (
            -8,
            "cuCtxSynchronize_v2: 'replay' is given, but it has no message of its own",
            "Remove 'replay'",
        ),
    ),
    "remembers what may wait for the device": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY + "        remember: true\n",
        (
            0,
            "cuEventQuery: 'remember' is for generated calls that only ask, with a struct for a struct",
            "Remove 'remember'",
        ),
    ),
    "restores, and is kept": (
        SESSION,
        "replay: {set: owner, by: [name]}",
        "restore: true\n        replay: {set: owner, by: [name]}",
        (
            1,
            "sessionGetGlobal: an operation that restores is not itself kept",
            "Write 'replay: none'",
        ),
    ),
}


@pytest.mark.some(12)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told(mistake: str, tmp_path: Path) -> None:
    file, old, new, (offset, cause, remedy) = MISTAKES[mistake]
    specs, line = edited(tmp_path, file, old, new)
    cause, remedy = (RELATIVE.sub(lambda m: str(line + int(m[1])), text) for text in (cause, remedy))
    with pytest.raises(SpecError) as caught:
        load(specs)
    assert str(caught.value) == f"{shown(file, old)}:{line + offset}: {cause}\n    {remedy}"


HEADER_MISTAKES = {
    "result that ends its context": (
        RESULTS,
        'text: "misaligned address", destroys: header}',
        'text: "misaligned address"}',
        (
            0,
            "CUDA_ERROR_MISALIGNED_ADDRESS: cuda.h says that its context cannot go on",
            "Add 'destroys: header'",
        ),
    ),
    "result that does not": (
        RESULTS,
        'text: "out of memory"}',
        'text: "out of memory", destroys: header}',
        (
            0,
            "CUDA_ERROR_OUT_OF_MEMORY: cuda.h does not say that it ends its context",
            "Write 'destroys: practice', or leave it out",
        ),
    ),
    "wrong signature": (
        DRIVER,
        "CUresult cuEventQuery(CUevent hEvent)",
        "CUresult cuEventQuery(CUstream hEvent)",
        (
            -3,
            "cuEventQuery: the signature is not cuda.h's",
            "There it is CUresult cuEventQuery(CUevent hEvent)",
        ),
    ),
    "wrong version": (
        DRIVER,
        EVENT_QUERY,
        EVENT_QUERY.replace("2000", "2010"),
        (
            0,
            "cuEventQuery: cudaTypedefs.h has no such interface since 2010",
            "Versions of cuEventQuery there: [2000]",
        ),
    ),
    "unknown enumerator": (
        "cuda/device.yaml",
        "CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED",
        "CU_DEVICE_ATTRIBUTE_COMPRESSING",
        (0, "CU_DEVICE_ATTRIBUTE_COMPRESSING is no CUdevice_attribute", "Spell it as cuda.h does"),
    ),
    "wrong width": (
        "cuda/types.yaml",
        "  int64_t: i64",
        "  int64_t: i32",
        (0, "int64_t does not fit i32", "Make the line say what cuda.h says"),
    ),
    "wrong sign": (
        "cuda/types.yaml",
        "  CUdevice: i32",
        "  CUdevice: u32",
        (0, "CUdevice has not the sign of u32", "Make the line say what cuda.h says"),
    ),
    "other header": (
        "cuda/driver.yaml",
        "version: 13050",
        "version: 13040",
        None,
    ),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("mistake", HEADER_MISTAKES)
def test_difference_from_the_header_is_told(mistake: str, tmp_path: Path) -> None:
    file, old, new, expected = HEADER_MISTAKES[mistake]
    specs, line = edited(tmp_path, file, old, new)
    problems = check(load(specs), find(None))
    assert len(problems) == 1
    if expected is None:
        assert problems[0].startswith("specs/cuda/driver.yaml:1: the spec is of cuda.h 13040, ")
    else:
        offset, cause, remedy = expected
        assert problems[0] == f"{shown(file, old)}:{line + offset}: {cause}\n    {remedy}"


def test_result_that_is_not_listed_is_told(tmp_path: Path) -> None:
    specs, line = edited(tmp_path, RESULTS, "  CUDA_ERROR_NO_DEVICE:", "  CUDA_ERROR_NO_LUCK:")
    problems = check(load(specs), find(None))
    end = (specs / RESULTS).read_text(encoding="utf-8").count("\n")
    missing = "cuda.h has CUDA_ERROR_NO_DEVICE, which is not listed\n    Add it, with its text"
    assert problems == [
        f"specs/{RESULTS}:{line}: CUDA_ERROR_NO_LUCK is no CUresult\n    Spell it as cuda.h does",
        f"specs/{RESULTS}:{end}: {missing}",
    ]


def test_function_that_is_not_listed_is_told(tmp_path: Path) -> None:
    specs, _ = edited(tmp_path, DRIVER, "  cuFlushGPUDirectRDMAWrites:", "  cuRenamed:")
    file = entry(specs, DRIVER, "  cuRenamed:")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("cuFlushGPUDirectRDMAWrites", "cuRenamed"), encoding="utf-8")
    problems = check(load(specs), find(None))
    assert any("cuda.h declares cuFlushGPUDirectRDMAWrites, which is not listed" in p for p in problems)
    assert any("cuRenamed is not declared in cuda.h" in p for p in problems)
