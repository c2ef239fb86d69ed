"""What the server's emitters make of a spec, and what they refuse to make anything of."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.generate import ROOT, outputs
from codegen.header import compiler, find, folders
from codegen.load import load
from codegen.model import Spec, SpecError
from tests.helpers.spec_text import entry

from .spec_edits import edited, shown

DRIVER, SESSION, OBJECTS = "cuda/driver", "gpuferry/session.yaml", "cuda/objects.yaml"
TYPES = "cuda/types.yaml"
DISPATCH, PLAIN = "apiserver/_generated/dispatch.pxi", "apiserver/_generated/objects.pxi"

GRANULARITY = """        class: local
        needs: driver
        guest: generated
        early:
          - {if: prop.type != CU_MEM_ALLOCATION_TYPE_PINNED, result: CUDA_ERROR_INVALID_VALUE}
          - {if: prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE and \
prop.location.type != CU_MEM_LOCATION_TYPE_HOST and prop.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA, \
result: CUDA_ERROR_INVALID_VALUE}
        answer: {granularity: session.granularity}
        quiet: CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
        args:
          granularity: {kind: out}
          prop: {kind: in}
          option: {kind: enum, max: CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}
"""
ASKED = """        class: sync
        needs: driver
        guest: generated
        server: generated
        replay: none
        args:
          granularity: {kind: out}
          prop: {kind: in}
          option: {kind: enum, max: CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}
"""
FAMILY = {
    "cuImportExternalSemaphore": """        class: async
        needs: context
        guest: generated
        server: generated
        replay: create
        args:
          extSem_out: {kind: handle, of: semaphore, use: create}
          semHandleDesc: {kind: ignored}
""",
    "cuDestroyExternalSemaphore": """        class: async
        needs: context
        guest: generated
        server: generated
        replay: destroy
        args:
          extSem: {kind: handle, of: semaphore, use: destroy}
""",
}
KINDS = """  semaphore:
    id: 99
    type: CUexternalSemaphore
    owner: context
    destroy: cuDestroyExternalSemaphore
    error: CUDA_ERROR_INVALID_VALUE
    rebuilt: replay
"""


def grown(folder: Path) -> Spec:
    """A spec with a call that sends a struct, and a plain kind of object that is made and ended."""
    specs, _ = edited(folder, DRIVER, GRANULARITY, ASKED)
    for symbol, said in FAMILY.items():
        file = entry(specs, DRIVER, f"      - symbol: {symbol}\n")
        text = file.read_text(encoding="utf-8")
        at = text.index("        class: ", text.index(f"      - symbol: {symbol}\n"))
        after = re.compile(r"^ {0,6}\S", re.M).search(text, at)
        assert after
        file.write_text(text[:at] + said + text[after.start() :], encoding="utf-8")
    with (specs / OBJECTS).open("a", encoding="utf-8") as objects:
        objects.write(KINDS)
    types = (specs / TYPES).read_text(encoding="utf-8")
    (specs / TYPES).write_text(
        types.replace("handles:\n", "handles:\n  CUexternalSemaphore: semaphore\n", 1),
        encoding="utf-8",
    )
    return load(specs)


def function(text: str, name: str) -> str:
    """One function of a generated file."""
    found = re.search(rf"^cdef \w+ {name}\(.*?(?=^cdef |\Z)", text, re.M | re.S)
    assert found, f"there is no {name}"
    return found[0].rstrip()


def test_a_struct_is_decoded_and_given_to_the_driver(tmp_path: Path) -> None:
    """The driver was given the address of nothing at all: with both sides generated, zeros."""
    found = function(outputs(grown(tmp_path))[DISPATCH], "serve_cuMemGetAllocationGranularity")
    decode = found.index("gf_decode_CUmemAllocationProp(&d, q.prop, &prop)")
    call = found.index("cu.cuMemGetAllocationGranularity(&granularity, &prop, ")
    end = found.index("gf_decoder_end(&d)")
    assert decode < call < end
    assert "return" not in found[decode:end]  # or what the codec took would never be given back
    assert found.index("q.option > cu.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED") < decode


def test_a_plain_kind_of_object_needs_nothing_by_hand(tmp_path: Path) -> None:
    files = outputs(grown(tmp_path))
    create = function(files[DISPATCH], "serve_cuImportExternalSemaphore")
    assert "status = status or adopt_semaphore(s, f, q.extSem_out, extSem_out)" in create
    adopt = function(files[PLAIN], "adopt_semaphore")
    assert adopt.index("put(s, handle, SEMAPHORE") < adopt.index(
        "cu.cuDestroyExternalSemaphore(made)"
    )  # rolled back
    assert "return retire_semaphore(s, f, q.extSem)" in function(
        files[DISPATCH], "serve_cuDestroyExternalSemaphore"
    )
    assert "cu.cuDestroyExternalSemaphore(semaphore.cu)" in function(files[PLAIN], "drop_semaphore")
    assert "return drop_semaphore(s, <Semaphore *>object)" in function(files[PLAIN], "drop_object")


def test_options_are_decoded_for_whoever_writes_the_rest() -> None:
    found = function(outputs(load())[DISPATCH], "serve_cuLinkCreate_v2")
    decode = found.index("gf_take_CUjit_options(&d, &numOptions, &options, &optionValues)")
    call = found.index("on_cuLinkCreate_v2(s, f, q, numOptions, options, optionValues)")
    assert decode < found.index("codec_status(s, f, &d, status)") < call < found.index("gf_decoder_end(&d)")


def test_options_are_given_to_the_driver(tmp_path: Path) -> None:
    old = "        server: custom\n        override: {guest: [decode]}\n"
    specs, _ = edited(
        tmp_path, DRIVER, old, "        server: generated\n        override: {guest: [decode]}\n"
    )
    text = (specs / OBJECTS).read_text(encoding="utf-8")
    custom = text[text.index("    server:\n      struct: Link") : text.index("  memory_allocation:")]
    (specs / OBJECTS).write_text(text.replace(custom, ""), encoding="utf-8")
    found = outputs(load(specs))[DISPATCH]
    given = "cu.cuLinkCreate(numOptions, options, optionValues, &stateOut)"
    assert given in function(found, "serve_cuLinkCreate_v2")


@pytest.mark.slow
def test_what_it_makes_compiles(tmp_path: Path) -> None:
    """With a family of which not a line is written by hand: the engine for Cython, the guest for C."""
    engine = tmp_path / "apiserver"
    for folder in ("core", "faces"):
        shutil.copytree(ROOT / "apiserver" / folder, engine / folder)
    shutil.copy(ROOT / "apiserver" / "_core.pyx", engine)
    for path, text in outputs(grown(tmp_path)).items():
        if path.startswith(("apiserver/", "guest/", "native/")):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "cython", "--cplus", "-3", "-Werror", "-I", str(engine), "_core.pyx"]
    done = subprocess.run([*command, "-o", "core.cpp"], cwd=engine, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "guest" / "_generated"
    ours = (made, tmp_path / "native" / "_generated", ROOT / "guest" / "src", ROOT / "native")
    options = [*(f"-I{folder}" for folder in ours), *folders(find(None))]
    for source in sorted(made.glob("*.c")):
        command = [compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", *options]
        done = subprocess.run([*command, "-fsyntax-only", source], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


COPY_TARGET = "target: {kind: pointer, access: write, size: target_pitch * (rows - 1) + width}"
WAIT = """          hEvent: {kind: handle, of: event}
          Flags: {kind: flags, allow: [CU_EVENT_WAIT_EXTERNAL]}"""
WHOLE_WAIT = f"""        needs: owner    # the stream's
        guest: generated
        server: generated
        override: {{guest: [send], server: [call]}}
        replay: none
        args:
          hStream: {{kind: handle, of: stream, nullable: true}}
{WAIT}"""
CACHE = """          hfunc: {kind: handle, of: [function, kernel]}
          config: {kind: enum, max: CU_FUNC_CACHE_PREFER_EQUAL}"""
CREATE = """        guest: custom
        server: generated
        override: {server: [call]}
        replay: create
        args:
          pctx: {kind: handle, of: context, use: create}
          flags: {kind: flags, allow: [CU_CTX_SCHED_MASK"""
FENCE = """        server: generated
        override: {server: [call]}
        replay: none

  sessionImageData"""

# File, text, its replacement; then what is told: line counted from that of the edit, cause.
MISTAKES = {
    "memory of no size": (
        SESSION,
        COPY_TARGET,
        "target: {kind: pointer, access: write}",
        (0, "target: it is device memory, but 'size' is not given"),
    ),
    "memory that is neither read nor written": (
        SESSION,
        COPY_TARGET,
        "target: {kind: pointer, size: width}",
        (0, "target: it is device memory, but 'access' is not given"),
    ),
    "enum without values": (
        DRIVER,
        CACHE,
        CACHE.replace(", max: CU_FUNC_CACHE_PREFER_EQUAL", ""),
        (1, "config: nobody says which values of CUfunc_cache there are"),
    ),
    "kinds with different errors": (
        OBJECTS,
        "destroy: cuModuleUnload\n    error: CUDA_ERROR_INVALID_HANDLE",
        "destroy: cuModuleUnload\n    error: CUDA_ERROR_INVALID_VALUE",
        (None, "owner: the kinds module, library are refused with different errors"),
    ),
    "kinds with different structs": (
        DRIVER,
        WAIT,
        WAIT.replace("of: event", "of: [event, stream]"),
        (0, "hEvent: it is a Event or a Stream"),
    ),
    "kinds of which one is settled": (
        DRIVER,
        WAIT,
        WAIT.replace("of: event", "of: [event, module]"),
        (None, "cuStreamWaitEvent: hEvent: a handle of several kinds, of which one has 'settle'"),
    ),
    "kind that the server has not": (
        DRIVER,
        WHOLE_WAIT,
        WHOLE_WAIT.replace("owner    # the stream's", "context").replace("of: event", "of: memory_pool"),
        (7, "hEvent: the server has no memory_pool"),
    ),
    "kind that cannot be waited for": (
        OBJECTS,
        "drop_event, await_event]",
        "drop_event]",
        (None, "hEvent: the engine has no await_event"),
    ),
    "limit that the server cannot know": (
        SESSION,
        "largest_size: {kind: scalar, max: 1}",
        "largest_size: {kind: scalar, max: sizes}",
        (0, "largest_size: the server cannot know 'sizes'"),
    ),
    "interface that the binding has not": (
        DRIVER,
        CREATE,
        CREATE.replace("        override: {server: [call]}\n", ""),
        (None, "cuCtxCreate_v2: the driver's binding has cuCtxCreate_v4 in its place"),
    ),
    "function that the driver has not": (
        SESSION,
        FENCE,
        FENCE.replace("        override: {server: [call]}\n", ""),
        (None, "sessionFence: the driver has no such function"),
    ),
    "handle of two kinds to create": (
        SESSION,
        "        server: custom\n        replay: create\n        args:\n          function: {kind: handle",
        "        server: generated\n        override: {server: [call]}\n        replay: create\n"
        "        args:\n          function: {kind: handle",
        (4, "function: the server cannot tell which of them is created"),
    ),
    "bytes that are gone when they would be kept": (
        SESSION,
        "        replay: none\n        args:\n          stream: {kind: handle, of: stream, nullable: true}\n"
        "          address: {kind: pointer, access: write, size: pitch * (rows - 1) + width}\n"
        "          pitch: {kind: scalar}\n          width: {kind: scalar, min: 1}\n"
        "          rows: {kind: scalar, min: 1}\n          data: {kind: in",
        "        replay: {set: stream, by: [pitch]}\n        args:\n"
        "          stream: {kind: handle, of: stream, nullable: true}\n"
        "          address: {kind: pointer, access: write, size: pitch * (rows - 1) + width}\n"
        "          pitch: {kind: scalar}\n          width: {kind: scalar, min: 1}\n"
        "          rows: {kind: scalar, min: 1}\n          data: {kind: in",
        (7, "sessionCopyIn: 'data' is gone when the frame would be kept"),
    ),
}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("file", "old", "new", "told"), MISTAKES.values(), ids=[name.replace(" ", "-") for name in MISTAKES]
)
def test_what_cannot_be_made_is_told(
    tmp_path: Path, file: str, old: str, new: str, told: tuple[int | None, str]
) -> None:
    specs, line = edited(tmp_path, file, old, new)
    with pytest.raises(SpecError) as error:
        outputs(load(specs))
    place, cause = str(error.value).split(": ", 1)
    assert cause.split("\n")[0] == told[1]
    assert re.fullmatch(r"specs/[\w/]+\.yaml:\d+", place)
    assert "\n    " in cause, "no remedy"
    if told[0] is not None:
        assert place == f"{shown(file, old)}:{line + told[0]}"


def test_an_expression_too_large_is_refused_not_wrapped(tmp_path: Path) -> None:
    """Sizes of the guest are computed with calls that stop at the largest number."""
    found = function(outputs(load())[DISPATCH], "serve_sessionCopy")
    size = "gf_plus(gf_times(<uint64_t>q.target_pitch, gf_minus(<uint64_t>q.rows, 1)), <uint64_t>q.width)"
    assert f"not may_write(s, q.target, {size})" in found
    assert f"not may_read(s, q.source, {size.replace('target', 'source')})" in found


def test_added_frames_are_all_kept(tmp_path: Path) -> None:
    """`replay: {add: ARG}`: no call undoes another."""
    old = "replay: {set: owner, by: [name]}"
    specs, _ = edited(tmp_path, SESSION, old, "replay: {add: owner}")
    text = outputs(load(specs))[DISPATCH]
    assert "replay_of(GF_OP_sessionGetGlobal, LASTING_ADD, 0, KEPT_IN_ITS_OWN)" in text
