"""Types that nest: the guest encodes what the spec says, and the server makes the same value of it."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.emit.codecs import Needed, codecs
from codegen.generate import ROOT, outputs
from codegen.header import compiler, find, folders
from codegen.load import load
from codegen.model import Spec

from .codec_reference import BAD, DEVICES, LIMIT, Memory, Reference, Value
from .spec_edits import edited

HERE = Path(__file__).parent


def spec_with_probes() -> Spec:
    """The spec, and types that have what no carried type of cuda.h has (codec_types.yaml)."""
    with tempfile.TemporaryDirectory() as folder:
        more = (HERE / "codec_types.yaml").read_text(encoding="utf-8")
        specs, _ = edited(Path(folder), "cuda/types.yaml", "\nstructs:\n", f"\n{more}")
        return load(specs)


SPEC = spec_with_probes()
NESTING = SPEC.types.nesting
TYPES = sorted(NESTING.structs)
# Always refused: it needs a host function.
CARRIED = [name for name in TYPES if name != "CUDA_HOST_NODE_PARAMS"]
ENUMERATORS = sorted(
    {name for enum in NESTING.enums.values() for name in enum.allow + enum.refuse}
    | {
        name
        for struct in NESTING.structs.values()
        for member in NESTING.walk(struct.members)
        for name in member.allow + member.refuse
    }
)
SUCCESS, INVALID_VALUE, INVALID_DEVICE, INVALID_HANDLE, NOT_SUPPORTED = 0, 1, 101, 400, 801
MALFORMED = -4
FLAGS = [
    "-std=gnu11",
    "-fsanitize=undefined",
    "-fsanitize-undefined-trap-on-error",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-cast-function-type",
]


def sources(folder: Path) -> list[str]:
    """Writes the codecs of all types to a folder; how something of this folder is compiled with them."""
    needed = Needed(tuple(TYPES), tuple(n for n in TYPES if NESTING.is_flat(n)), tuple(NESTING.options))
    for path, text in codecs(SPEC, needed).items():
        if "hooks" in path:
            continue  # the probe has its own
        side = "guest" if path.startswith("guest") else "server"
        name = f"codec_{side}{Path(path).suffix}"
        (folder / name).write_text(text.replace('"codecs.h"', f'"codec_{side}.h"'), encoding="utf-8")
    kinds = folder / "gpuferry" / "kinds.h"
    kinds.parent.mkdir()
    kinds.write_text(outputs(SPEC)["native/_generated/gpuferry/kinds.h"], encoding="utf-8")
    tables = {"TYPES": TYPES, "VALUES": ENUMERATORS}
    text = "".join(
        f"#define {name}(X) {' '.join(f'X({one})' for one in all_of)}\n" for name, all_of in tables.items()
    )
    (folder / "codec_tables.h").write_text(text, encoding="utf-8")
    interop = ROOT / "native"
    return [
        compiler(),
        *FLAGS,
        f"-I{folder}",
        f"-I{HERE}",
        f"-I{interop}",
        *folders(find(None)),
        f"-include{HERE / 'codec_types.h'}",
        f"-include{folder / 'codec_tables.h'}",
        str(folder / "codec_guest.c"),
        str(folder / "codec_server.c"),
    ]


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("codecs")
    library = folder / "probe.so"
    build = [*sources(folder), str(HERE / "codec_probe.c"), "-shared", "-fPIC", "-o", str(library)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = ctypes.CDLL(str(library))
    found.probe_decode.restype = found.probe_begin.restype = ctypes.c_void_p
    found.probe_end.argtypes = [ctypes.c_void_p]
    return found


class Wire:
    """Both halves behind the probe."""

    def __init__(self, probe: ctypes.CDLL) -> None:
        self.probe = probe
        self.reference = Reference(
            NESTING, SPEC.types.scalars, lambda name: int(probe.probe_value(name.encode()))
        )

    def encode(self, name: str, native: bytes, count: int = 1, nullable: bool = False) -> tuple[int, bytes]:
        encoding = ctypes.create_string_buffer(256 << 10)
        size = ctypes.c_size_t()
        result = self.probe.probe_encode(
            name.encode(), native or None, ctypes.c_uint64(count), nullable, encoding, ctypes.byref(size)
        )
        return int(result), encoding.raw[: size.value]

    def decode(
        self,
        name: str,
        encoding: bytes,
        read: Callable[[int], Any] = lambda _: None,
        count: int = 1,
        nullable: bool = False,
    ) -> tuple[int, Any, str]:
        """Status, what `read` makes of the address of the first value, and why the encoding is malformed."""
        found, status, why = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_char_p()
        decoder = self.probe.probe_decode(
            name.encode(),
            encoding,
            ctypes.c_size_t(len(encoding)),
            ctypes.c_uint64(count),
            nullable,
            ctypes.byref(found),
            ctypes.byref(status),
            ctypes.byref(why),
        )
        value = read(found.value or 0) if status.value == SUCCESS else None
        text = (why.value or b"").decode()
        self.probe.probe_end(decoder)
        return status.value, value, text


@pytest.fixture(scope="session")
def wire(probe: ctypes.CDLL) -> Wire:
    return Wire(probe)


@pytest.mark.some(5)
@pytest.mark.parametrize("name", CARRIED)
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_sent_arrives(wire: Wire, name: str, data: st.DataObject) -> None:
    """The bytes are those that the spec says, and the driver is given the same value."""
    reference = wire.reference
    value: Value = data.draw(reference.values(name))
    memory = Memory()
    native, _ = reference.put(name, value, memory)
    status, encoding = wire.encode(name, native)
    assert status == SUCCESS
    assert encoding == b"".join(reference.put(name, value, None))
    status, arrived, why = wire.decode(name, encoding, lambda address: reference.get(name, address))
    assert (status, why) == (SUCCESS, "")
    assert arrived == reference.expected(name, value)


@pytest.mark.some(10)
@pytest.mark.parametrize("name", CARRIED)
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_arrays_and_null(wire: Wire, name: str, data: st.DataObject) -> None:
    """An argument may be many values or none; images stand side by side, what they lead to follows."""
    reference = wire.reference
    values = data.draw(st.lists(reference.values(name), max_size=3))
    memory = Memory()
    native = b"".join(reference.put(name, value, memory)[0] for value in values)
    status, encoding = wire.encode(name, native or b"\0", len(values))
    assert status == SUCCESS
    parts = [reference.put(name, value, None) for value in values]
    assert encoding == b"".join(p[0] for p in parts) + b"".join(p[1] for p in parts)

    status, encoding = wire.encode(name, b"", 1, nullable=True)
    assert (status, encoding) == (SUCCESS, b"\0")
    assert wire.decode(name, encoding, lambda address: address, nullable=True) == (SUCCESS, 0, "")
    assert wire.encode(name, b"", 1)[0] == INVALID_VALUE


def filled(wire: Wire, name: str, **changes: Any) -> tuple[bytes, Memory]:
    """A value that is right but for some members, as the program has it."""
    reference = wire.reference
    memory = Memory()
    return reference.put(name, right(wire, name) | changes, memory)[0], memory


def some(wire: Wire, name: str, number: int) -> list[Value]:
    """The plainest value of a type, and a few that are not; the same in each run."""
    found: list[Value] = []

    @settings(max_examples=number, deadline=None, database=None, derandomize=True)
    @given(wire.reference.values(name))
    def take(value: Value) -> None:
        found.append(value)

    take()
    return found


def right(wire: Wire, name: str) -> Value:
    return some(wire, name, 1)[0]


def refused(wire: Wire, name: str, place: int, change: bytes) -> tuple[int, int]:
    """What both halves say to a value of which some bytes are wrong."""
    reference = wire.reference
    value = right(wire, name)
    memory = Memory()
    native = bytearray(reference.put(name, value, memory)[0])
    native[place : place + len(change)] = change
    image, behind = reference.put(name, value, None)
    travels = bytearray(image)
    travels[place : place + len(change)] = change
    return wire.encode(name, bytes(native))[0], wire.decode(name, bytes(travels) + behind)[0]


# Type, offset, bytes there, and what both sides answer.
REFUSALS = {
    "enum that is not known": ("CUmemLocation", 0, b"\x63", INVALID_VALUE),
    "enum that is not carried": ("CUmemLocation", 0, b"\x02", NOT_SUPPORTED),
    "tag that selects nothing": ("CUlaunchAttribute", 0, b"\xff", INVALID_VALUE),
    "tag that is not carried": ("CUlaunchAttribute", 0, b"\x0d", NOT_SUPPORTED),
    "must be zero": ("CUmemAllocationProp", 16, b"\x01", INVALID_VALUE),
    "must be zero, an array": ("CUmemPoolProps", 87, b"\x01", INVALID_VALUE),
    "flag that is not known": ("CUmemcpyAttributes", 20, b"\x02", INVALID_VALUE),
    "flag that is not carried": ("CUmemAllocationProp", 26, b"\x04", NOT_SUPPORTED),
    "number that is too large": ("CUDA_ARRAY_DESCRIPTOR", 20, b"\x05", INVALID_VALUE),
    "number that is too small": ("CUDA_ARRAY_DESCRIPTOR", 20, b"\x00", INVALID_VALUE),
    "device that is not there": (
        "CUmemLocation",
        0,
        b"\x01\0\0\0" + bytes([DEVICES, 0, 0, 0]),
        INVALID_DEVICE,
    ),
    "address that is not the session's": (
        "CUDA_MEMSET_NODE_PARAMS",
        0,
        LIMIT.to_bytes(8, "little"),
        INVALID_VALUE,
    ),
    "size that overflows": (
        "CUDA_MEMSET_NODE_PARAMS",
        8,
        (1 << 63).to_bytes(8, "little") + bytes(4) + b"\x01\0\0\0" + bytes(8) + b"\x03" + bytes(7),
        INVALID_VALUE,
    ),
    "more elements than there may be": ("CUctxCreateParams", 8, b"\x11", INVALID_VALUE),
    "a negative number of elements": ("CUctxCreateParams", 8, b"\xff\xff\xff\xff", INVALID_VALUE),
    "function of the host": ("CUDA_HOST_NODE_PARAMS", 0, b"\x01", NOT_SUPPORTED),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_both_sides_refuse_the_same(wire: Wire, what: str) -> None:
    """The guest at once, and the server again: it never trusts the guest."""
    name, place, change, error = REFUSALS[what]
    assert refused(wire, name, place, change) == (error, error)


def test_a_bad_handle_is_that_calls_error(wire: Wire) -> None:
    native, _memory = filled(wire, "CUlaunchConfig", hStream=BAD)
    assert wire.encode("CUlaunchConfig", native)[0] == INVALID_HANDLE
    image, behind = wire.reference.put(
        "CUlaunchConfig", right(wire, "CUlaunchConfig") | {"hStream": BAD}, None
    )
    assert wire.decode("CUlaunchConfig", image + behind)[0] == INVALID_HANDLE


def test_what_has_no_effect_is_left_out(wire: Wire) -> None:
    """Of a launch's attributes, those that are dropped; and their number is that of the others."""
    value = wire.reference.value
    ignore = {"id": value("CU_LAUNCH_ATTRIBUTE_IGNORE"), "value": None}
    cases = {case.name: case for case in NESTING.unions["CUlaunchAttributeValue"].cases}
    priority = {"id": value("CU_LAUNCH_ATTRIBUTE_PRIORITY"), "value": (cases["priority"], -1)}
    native, _memory = filled(wire, "CUlaunchConfig", numAttrs=3, attrs=[ignore, priority, ignore])
    status, encoding = wire.encode("CUlaunchConfig", native)
    _, arrived, _ = wire.decode(
        "CUlaunchConfig", encoding, lambda at: wire.reference.get("CUlaunchConfig", at)
    )
    assert status == SUCCESS
    assert (arrived["numAttrs"], arrived["attrs"]) == (1, [priority])


def test_more_than_a_frame_holds_is_refused(wire: Wire) -> None:
    native, _memory = filled(wire, "CUmemAccessDesc")
    many = (192 << 10) // len(native) + 1
    assert wire.encode("CUmemAccessDesc", native * many, many)[0] == 2
    assert wire.encode("CUmemAccessDesc", native * (many - 1), many - 1)[0] == SUCCESS
    assert wire.decode("CUmemAccessDesc", native, count=1 << 60)[::2] == (
        MALFORMED,
        "values end before their number",
    )


@pytest.fixture
def decoder(probe: ctypes.CDLL) -> Iterator[Callable[[bytes], ctypes.c_void_p]]:
    """Decoders over bytes, given back after the test."""
    begun = []

    def begin(encoding: bytes) -> ctypes.c_void_p:
        begun.append((probe.probe_begin(encoding, ctypes.c_size_t(len(encoding))), encoding))
        return ctypes.c_void_p(begun[-1][0])

    yield begin
    for one, _ in begun:
        probe.probe_end(one)


def test_nothing_of_the_servers_leaves_it(wire: Wire, decoder: Callable[[bytes], ctypes.c_void_p]) -> None:
    """An answer holds what the spec lists, and zero where the driver has anything else."""
    native, _memory = filled(wire, "CUmemAllocationProp")
    dirty = bytearray(native)
    dirty[16:24] = b"\xaa" * 8  # win32HandleMetaData
    image = ctypes.create_string_buffer(len(native))
    assert wire.probe.gf_return_CUmemAllocationProp(decoder(b""), bytes(dirty), image) == SUCCESS
    assert image.raw == native[:16] + bytes(8) + native[24:28] + bytes(4)


OPTIONS = {
    "number": ([(0, 32)], SUCCESS, [(0, 32)]),
    "none": ([], SUCCESS, []),
    "log, which stays in the guest": ([(3, 1 << 40), (4, 100), (7, 4)], SUCCESS, [(7, 4)]),
    "too large": ([(7, 5)], INVALID_VALUE, None),
    "not carried": ([(17, 0)], NOT_SUPPORTED, None),
    "unknown": ([(99, 0)], INVALID_VALUE, None),
    "too many": ([(0, 32)] * 65, INVALID_VALUE, None),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_options(wire: Wire, decoder: Callable[[bytes], ctypes.c_void_p], what: str) -> None:
    """Numbers travel as pairs; what is for the program's memory stays with the guest."""
    pairs, error, travel = OPTIONS[what]
    probe = wire.probe
    options = (ctypes.c_int * len(pairs))(*(option for option, _ in pairs))
    values = (ctypes.c_uint64 * len(pairs))(*(value for _, value in pairs))
    encoding, size = ctypes.create_string_buffer(1024), ctypes.c_size_t()
    given = ctypes.c_uint64(len(pairs))
    assert probe.probe_options(given, options, values, encoding, ctypes.byref(size)) == error
    if travel is None:
        bad = b"".join(struct.pack("<II", option, value) for option, value in pairs)
        travel_status = taken(probe, decoder, struct.pack("<I", len(pairs)) + bad)[0]
        assert travel_status == (MALFORMED if what == "too many" else error)
        return
    words = [word for pair in travel for word in pair]
    assert encoding.raw[: size.value] == struct.pack(f"<I{len(words)}I", len(travel), *words)
    assert taken(probe, decoder, encoding.raw[: size.value]) == (SUCCESS, travel)
    assert taken(probe, decoder, encoding.raw[: size.value - 1])[0] == MALFORMED


def taken(
    probe: ctypes.CDLL, decoder: Callable[[bytes], ctypes.c_void_p], encoding: bytes
) -> tuple[int, list[tuple[int, int]]]:
    """What the server makes of options."""
    count = ctypes.c_uint()
    options, values = ctypes.POINTER(ctypes.c_int)(), ctypes.POINTER(ctypes.c_uint64)()
    found = (ctypes.byref(count), ctypes.byref(options), ctypes.byref(values))
    status = probe.gf_take_CUjit_options(decoder(encoding), *found)
    return status, [(options[i], values[i]) for i in range(count.value)] if status == SUCCESS else []


def test_hooks_of_all_types_compile(tmp_path: Path) -> None:
    """What turns handles into wire ids is made from objects.yaml, for whatever a struct names."""
    found = outputs(SPEC) | codecs(SPEC, Needed(tuple(TYPES), (), ()))
    for path, text in found.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    made = tmp_path / "guest/_generated"
    ours = [made, tmp_path / "native/_generated", ROOT / "guest/src", ROOT / "native"]
    includes = [*(f"-I{folder}" for folder in ours), *folders(find(None))]
    for name in ("codec_hooks.c", "codecs.c"):
        types = f"-include{HERE / 'codec_types.h'}"
        build = [compiler(), *FLAGS, *includes, types, "-fsyntax-only", str(made / name)]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_hostile_bytes(tmp_path: Path, wire: Wire) -> None:
    """Under sanitizers: every beginning of an encoding is malformed; changed bytes do no harm."""
    for name in CARRIED:
        for i, value in enumerate(some(wire, name, 4)):
            (tmp_path / f"{name}.{i}").write_bytes(b"".join(wire.reference.put(name, value, None)))
    files = sorted(str(path) for path in tmp_path.iterdir())
    folder = tmp_path / "build"
    folder.mkdir()
    program = folder / "hostile"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]
    build = [*sources(folder), str(HERE / "codec_hostile.c"), *sanitizers, "-o", str(program)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program), *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
