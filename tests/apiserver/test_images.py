"""Images, what is made from them, and launches."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from gpuferry.specs._generated import frames

from tests.apiserver import kernels
from tests.apiserver.guest import PRIMARY, Guest, handle

INVALID_VALUE, INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE = 1, 200, 201, 400
NOT_PERMITTED, NOT_FOUND, NOT_SUPPORTED = 800, 500, 801
LIBRARY, MODULE = kernels.LIBRARY, handle("module", 0)
DIGEST = hashlib.sha256(kernels.PTX).digest()


def scaled(guest: Guest, function: int, context: int = PRIMARY) -> bool:
    """Whether a launch of `scale` does its work."""
    address = guest.window
    guest.send("sessionMemUnmap", address=address, size=2 << 20)
    guest.map()
    guest.write(address, struct.pack("<4I", 1, 2, 3, 4))
    guest.send(
        "sessionLaunch",
        context=context,
        function=function,
        stream=0,
        grid=(1, 1, 1),
        block=(4, 1, 1),
        shared=0,
        attributes=0,
        params=12,
        payload=struct.pack("<QI", address, 3),
    )
    guest.call("cuCtxSynchronize", context=context)
    return guest.read(address, 16) == struct.pack("<4I", 3, 6, 9, 12)


def test_kernel_table(guest: Guest) -> None:
    found = {kernel.name: kernel for kernel in kernels.load(guest)}
    assert found["scale"].params == [(0, 8), (8, 4)]
    assert found["wait_for"].params == [(0, 8), (8, 8)]
    assert found["scale"].attributes[0] >= 32  # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK


def test_an_image_is_sent_once(guest: Guest) -> None:
    unknown = guest.call("sessionLoadImage", hash=DIGEST, handle=LIBRARY, size=len(kernels.PTX))
    assert (unknown.status, unknown.values["known"]) == (0, 0)
    kernels.load(guest)
    again = guest.call("sessionLoadImage", hash=DIGEST, handle=handle("library", 1), size=len(kernels.PTX))
    assert (again.status, again.values["known"]) == (0, 1)
    other_size = guest.call("sessionLoadImage", hash=DIGEST, handle=handle("library", 2), size=5)
    assert (other_size.status, other_size.values["known"]) == (0, 0)


def test_images_are_loaded_as_they_came(guest: Guest) -> None:
    """The driver places variables in this order, and a moved session's in that of the frames."""
    slow = kernels.PTX + b"".join(
        b".visible .entry k%d(){ .reg .u32 %%r<2>; mov.u32 %%r1, %%tid.x; ret; }\n" % number
        for number in range(400)
    )
    digest = hashlib.sha256(slow).digest()
    kernels.load(guest)
    assert guest.load(slow, handle("library", 1), digest)[0].status == 0
    quick: dict[str, Any] = {"hash": DIGEST, "size": len(kernels.PTX)}
    late: dict[str, Any] = {"hash": digest, "size": len(slow)}
    asked = [
        guest.ask("sessionLoadImage", handle=handle("module", number), **(late if number % 2 else quick))
        for number in range(8)
    ]
    assert guest.answer(asked[-1]).status == 0
    assert list(guest.arrived) == asked[:-1]


def test_an_image_in_pieces(guest: Guest) -> None:
    size = len(kernels.PTX)
    for offset in range(0, size, 100):
        piece = kernels.PTX[offset : offset + 100]
        guest.send("sessionImageData", hash=DIGEST, size=size, offset=offset, payload=piece)
        # a piece that does not follow the last one changes nothing
        guest.send("sessionImageData", hash=DIGEST, size=size, offset=0, payload=bytes(10) if offset else b"")
    reply = guest.call("sessionLoadImage", hash=DIGEST, handle=LIBRARY, size=size)
    assert (reply.status, reply.values["known"], reply.values["kernel_count"]) == (0, 1, 3)


def test_bytes_that_do_not_have_their_hash(guest: Guest) -> None:
    reply, found, log = guest.load(kernels.PTX, LIBRARY, bytes(32))
    assert (reply.status, reply.values["known"], found) == (INVALID_IMAGE, 1, [])
    assert b"hash" in log
    assert guest.call("cuLibraryUnload", library=LIBRARY).status == INVALID_HANDLE
    kernels.load(guest)


@pytest.mark.parametrize(
    "image", [b"\0", b"nonsense\0", b"\x7fELF" + bytes(100), b"\x50\xed\x55\xba" + bytes(60)]
)
def test_images_that_are_none(guest: Guest, image: bytes) -> None:
    reply, _, _ = guest.load(image, LIBRARY, hashlib.sha256(image).digest())
    assert reply.status != 0
    assert guest.sync().status == 0


def fatbin(entry: bytes, size: int | None = None) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) if size is None else size) + entry


def fat_entry(
    payload: bytes, stored: int | None = None, header: int = 64, flags: int = 0, whole: int = 0
) -> bytes:
    told = len(payload) if stored is None else stored
    packed = told if flags else 0
    return struct.pack("<HHIQIIHHI8xQ8xQ", 1, 0, header, told, packed, 0, 0, 8, 80, flags, whole) + payload


def elf(sections: int = 0, at: int = 0, names: int = 0, segments: int = 0) -> bytes:
    identity = b"\x7fELF\x02\x01\x01\x33"
    return struct.pack(
        "<16sHHIQQQIHHHHHH", identity, 2, 190, 1, 0, 64, at, 0, 64, 56, segments, 64, sections, names
    )


def section(kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, 0, 0, 1, 0)


LINK_SET = 0x4B4C4647
LYING = {
    "a fatbin wrapper": (struct.pack("<IIQQ", 0x466243B1, 1, 0xDEAD0000, 0), "wrapper"),
    "the inside of a link": (b"GFSIMLNK" + struct.pack("<QIIII", 32, 0, 80, 0, 0), "without the ELF file"),
    "a fatbin larger than what was sent": (fatbin(b"", 1 << 30), "fatbin is cut short"),
    "a fatbin of nearly all memory": (fatbin(b"", (1 << 64) - 16), "fatbin is cut short"),
    "a fatbin without a header": (b"\x50\xed\x55\xba" + bytes(12), "no valid header"),
    "an entry larger than its fatbin": (fatbin(fat_entry(bytes(8), stored=1 << 20)), "wrong size"),
    "an entry that wraps around": (fatbin(fat_entry(bytes(8), stored=(1 << 64) - 64)), "wrong size"),
    "an entry's header that is no header": (fatbin(fat_entry(bytes(64), header=8)), "wrong size"),
    "an entry that is cut short": (fatbin(bytes(40)), "cut short"),
    "an entry that expands without end": (
        fatbin(fat_entry(bytes(8), flags=0x8000, whole=1 << 40)),
        "expands to more",
    ),
    "ELF in a fatbin": (fatbin(fat_entry(elf(1, at=1 << 40))), "tables"),
    "ELF without a header": (b"\x7fELF" + bytes(20), "cut short"),
    "a section table elsewhere": (elf(3, at=1 << 40), "tables"),
    "a section table that wraps around": (elf(3, at=(1 << 64) - 64), "tables"),
    "segments elsewhere": (elf(segments=100), "tables"),
    "names that are no section": (elf(1, at=64, names=5) + section(0, 0, 0), "tables"),
    "a section elsewhere": (elf(1, at=64) + section(1, 1 << 40, 8), "section"),
    "names in a section of nothing": (elf(1, at=64) + section(0, 1 << 40, 8), "names"),
    "names that do not end": (elf(1, at=64) + section(3, 0, 4), "section"),
    "a link set of nothing": (struct.pack("<II", LINK_SET, 0), "link set is cut short"),
    "a link set without its list": (struct.pack("<II", LINK_SET, 1 << 30), "link set is cut short"),
    "a link set of what is elsewhere": (struct.pack("<IIQ", LINK_SET, 1, 1 << 40), "lies outside"),
    "a link set of what is no fatbin": (struct.pack("<IIQ", LINK_SET, 1, 16) + bytes(64), "no valid header"),
    "a library": (b"!<arch>\n" + bytes(60), "only an input"),
}


@pytest.mark.parametrize("name", LYING)
def test_lengths_are_measured_before_a_driver_sees_them(guest: Guest, name: str) -> None:
    image, why = LYING[name]
    for owner in (LIBRARY, MODULE):
        reply, _, log = guest.load(image, owner, hashlib.sha256(image).digest())
        assert (reply.status, log.startswith(b"gpuferry: no image: ")) == (INVALID_IMAGE, True), log
        assert why.encode() in log
    assert guest.sync().status == 0


def test_library_kernel(guest: Guest) -> None:
    assert scaled(guest, kernels.bind(guest, "scale"))


def test_module_function(guest: Guest) -> None:
    reply, found, _ = guest.load(kernels.PTX, MODULE, DIGEST)
    assert reply.status == 0
    index = [kernel.name for kernel in found].index("scale")
    function = handle("function", 0)
    guest.send("sessionGetFunction", function=function, owner=MODULE, index=index)
    assert scaled(guest, function)
    assert guest.call("cuModuleUnload", hmod=MODULE).status == 0
    guest.launch(function, bytes(12))
    assert guest.sync().latched == INVALID_HANDLE


def test_module_of_a_library(guest: Guest) -> None:
    names = [kernel.name for kernel in kernels.load(guest)]
    guest.send("sessionGetModule", module=MODULE, library=LIBRARY)
    function = handle("function", 0)
    guest.send("sessionGetFunction", function=function, owner=MODULE, index=names.index("scale"))
    assert scaled(guest, function)
    assert guest.call("cuModuleUnload", hmod=MODULE).status == NOT_PERMITTED
    guest.send("cuLibraryUnload", library=LIBRARY)
    guest.launch(function, bytes(12))
    assert guest.sync().latched == INVALID_HANDLE
    assert guest.call("sessionGetModule", module=MODULE, library=LIBRARY).status == INVALID_HANDLE


def test_kernel_in_a_second_context(guest: Guest) -> None:
    kernel = kernels.bind(guest, "scale")
    second = handle("context", 1)
    guest.send("cuCtxCreate_v2", pctx=second, flags=0, dev=0)
    assert scaled(guest, kernel, context=2)
    assert scaled(guest, kernel)
    assert guest.call("cuCtxDestroy_v2", ctx=second).status == 0
    assert scaled(guest, kernel)
    assert guest.call("cuCtxSynchronize", context=2).status == INVALID_CONTEXT


def test_functions_that_cannot_be(guest: Guest) -> None:
    kernels.load(guest)
    get = {"function": handle("kernel", 0), "owner": LIBRARY}
    assert guest.call("sessionGetFunction", **get, index=3).status == NOT_FOUND
    assert guest.call("sessionGetFunction", **get, index=(1 << 32) - 1).status == NOT_FOUND
    assert guest.call("sessionGetFunction", **get, index=0).status == 0
    assert guest.call("sessionGetFunction", **get, index=0).status == INVALID_HANDLE
    get["function"] = handle("stream", 0)
    assert guest.call("sessionGetFunction", **get, index=0).status == INVALID_HANDLE


def test_variables_that_do_not_exist(guest: Guest) -> None:
    kernels.load(guest)
    for name in (b"nothing", b"", b"x" * 5000, b"vari\0able"):
        assert guest.call("sessionGetGlobal", owner=LIBRARY, payload=name).status == NOT_FOUND
    reply = guest.call("sessionGetGlobal", owner=LIBRARY, context=0, payload=b"variable")
    assert reply.status == INVALID_CONTEXT


def test_parameters_must_be_complete(guest: Guest) -> None:
    kernel = kernels.bind(guest, "scale")
    guest.launch(kernel, bytes(11))
    assert guest.sync().latched == INVALID_VALUE


# The number of an attribute, the first words of its value, and what becomes of the launch.
ATTRIBUTES = {
    "a hint, which is not passed on": (1, (0xDEAD0000, 0, 1), 0),
    "not cooperative": (2, (0,), 0),
    "cooperative": (2, (1,), 0),
    "synchronization policy": (3, (1,), 0),
    "synchronization policy that is none": (3, (0,), INVALID_VALUE),
    "cluster of one block": (4, (1, 1, 1), 0),
    "event": (7, (0, 0), NOT_SUPPORTED),
    "priority": (8, (0xFFFFFFFF,), 0),
    "event at completion": (12, (0, 0), NOT_SUPPORTED),
    "updatable node": (13, (0, 0), NOT_SUPPORTED),
    "carveout": (14, (50,), 0),
    "nvlink scheduling": (16, (1,), 0),
    "portable cluster": (17, (2,), 0),
    "portable cluster that is none": (17, (3,), INVALID_VALUE),
    "shared memory mode": (18, (4,), 0),
    "unknown": (99, (0,), INVALID_VALUE),
}


@pytest.mark.parametrize("what", ATTRIBUTES)
def test_launch_attributes(guest: Guest, what: str) -> None:
    """The server takes what a guest sends, and itself refuses what a guest would have refused."""
    attribute, words, latched = ATTRIBUTES[what]
    kernel = kernels.bind(guest, "scale")
    launch: dict[str, Any] = {
        "function": kernel,
        "stream": 0,
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "shared": 0,
    }
    value = struct.pack(f"<{len(words)}I", *words)
    payload = bytes(12) + frames.LaunchAttribute(attribute, 0, value).pack()
    guest.send("sessionLaunch", **launch, attributes=1, params=12, payload=payload)
    assert guest.sync().latched == latched


def test_impossible_launch_dimensions(guest: Guest) -> None:
    kernel = kernels.bind(guest, "scale")
    guest.launch(kernel, bytes(12), block=(2048, 1, 1))
    assert guest.sync().latched == INVALID_VALUE
    guest.launch(kernel, bytes(12), grid=(0, 1, 1))
    assert guest.sync().latched == INVALID_VALUE
