"""Which part of an image the guest ships."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.guest.images import ELF, EXACT, FAMILY, PTX, Entry, container
from tests.helpers.shared_object import SharedObject

LIBRARY = SharedObject(
    ["guest/src/image.c", "native/wire/link_set.c", "native/wire/readable.c"],
    gf_link_set_wrap=ctypes.c_void_p,
)
LIBC = ctypes.CDLL(None)
NO_BINARY_FOR_GPU, INVALID_IMAGE = 209, 200
TAKES_PTX, TAKES_SASS = 1, 2


class Target(ctypes.Structure):
    _fields_ = (("capability", ctypes.c_uint32), ("kinds", ctypes.c_uint32))


class Image(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("made", ctypes.c_void_p))


class Wrapper(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("rest", ctypes.c_void_p),
    )


class Wrapped:
    """A wrapper and all that it points at, kept alive."""

    def __init__(self, version: int, linked: bytes, parts: list[bytes]) -> None:
        self.linked = ctypes.create_string_buffer(linked)
        self.parts = [ctypes.create_string_buffer(part) for part in parts]
        self.list = (ctypes.c_void_p * (len(parts) + 1))(*[ctypes.addressof(p) for p in self.parts], None)
        rest = ctypes.addressof(self.list) if version == 2 else None
        self.wrapper = Wrapper(0x466243B1, version, ctypes.addressof(self.linked), rest)


def pick(image: bytes | Wrapped, capability: int = 80, kinds: int = TAKES_PTX | TAKES_SASS) -> bytes | int:
    """The bytes that are shipped, or the error."""
    picked = Image()
    source = ctypes.byref(image.wrapper) if isinstance(image, Wrapped) else ctypes.c_char_p(image)
    result: int = LIBRARY.gf_image_pick(source, ctypes.byref(Target(capability, kinds)), ctypes.byref(picked))
    if result != 0:
        return result
    data = ctypes.string_at(picked.data or 0, picked.size)
    LIBC.free(ctypes.c_void_p(picked.made))
    return data


def fits(entry: Entry, capability: int) -> bool:
    """Whether a chip of that capability can take it, if it takes the kind."""
    if entry.flags & EXACT:
        return entry.capability == capability
    own_generation = entry.capability // 10 == capability // 10
    return entry.capability <= capability and (own_generation or not entry.flags & FAMILY)


def expected(entries: list[Entry], capability: int, kinds: int) -> bytes | int:
    """This chip's machine code, or an older one's of its generation; else the newest text."""
    fit = [e for e in entries if fits(e, capability)]
    code = [e for e in fit if e.kind == ELF and e.capability // 10 == capability // 10 and kinds & TAKES_SASS]
    text = [e for e in fit if e.kind == PTX and kinds & TAKES_PTX]
    found = code or text
    return container(max(found, key=lambda e: e.capability)) if found else NO_BINARY_FOR_GPU


entry_lists = st.lists(
    st.builds(
        Entry,
        st.sampled_from([PTX, ELF, 16]),
        st.sampled_from([50, 75, 80, 86, 90, 120]),
        st.binary(max_size=64),
        st.sampled_from([0, 0x11, EXACT, FAMILY]),
    ),
    max_size=8,
    unique_by=lambda e: (e.kind, e.capability, e.flags & (EXACT | FAMILY)),
)


@given(entry_lists, st.sampled_from([75, 80, 86, 89, 90, 121]), st.integers(0, 3))
def test_the_best_entry_is_shipped_alone(entries: list[Entry], capability: int, kinds: int) -> None:
    assert pick(container(*entries), capability, kinds) == expected(entries, capability, kinds)


def test_text_is_shipped_with_its_end() -> None:
    assert pick(b".version 8.0\n.target sm_80\n") == b".version 8.0\n.target sm_80\n\0"


@pytest.mark.parametrize("image", [b"\0\0\0\0\0\0\0\0", b"\x01\x02\x03\x04" * 8, b"\x7fELG" + bytes(64)])
def test_what_is_no_image_is_refused(image: bytes) -> None:
    assert pick(image) == INVALID_IMAGE


@given(st.binary(min_size=64, max_size=256), st.integers(0, 300))
def test_garbage_inside_a_container_stays_inside(garbage: bytes, claimed: int) -> None:
    head = container()[:8] + min(claimed, len(garbage)).to_bytes(8, "little")
    result = pick(head + garbage)
    assert isinstance(result, bytes) or result in (NO_BINARY_FOR_GPU, INVALID_IMAGE)


class Edge:
    """An image that ends where what can be read ends."""

    def __init__(self, image: bytes) -> None:
        LIBC.mmap.restype = ctypes.c_void_p
        self._base = LIBC.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_size_t(0))
        LIBC.mprotect(ctypes.c_void_p(self._base + 4096), ctypes.c_size_t(4096), 0)
        self.address = self._base + 4096 - len(image)
        ctypes.memmove(self.address, image, len(image))

    def pick(self) -> int:
        picked = Image()
        result = LIBRARY.gf_image_pick(
            ctypes.c_void_p(self.address), ctypes.byref(Target(80, 3)), ctypes.byref(picked)
        )
        LIBC.munmap(ctypes.c_void_p(self._base), ctypes.c_size_t(8192))
        return int(result)


def elf(sections: int, table: int, *rest: bytes) -> bytes:
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 2, 190, 1, 0, 0, table, 0, 64, 56, 0, 64, sections, 0
    )
    return head + b"".join(rest)


@pytest.mark.parametrize(
    "image",
    [
        container()[:8] + (1 << 20).to_bytes(8, "little"),
        container()[:8] + ((1 << 64) - 16).to_bytes(8, "little"),
        container()[:12],
        b"\x7fELF" + bytes(8),
        elf(4, 1 << 20),
        elf(4, (1 << 64) - 64),
        elf(1, 64, struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 1 << 20, 8, 0, 0, 1, 0)),
        elf(1, 64, struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, (1 << 64) - 8, 0, 0, 1, 0)),
    ],
    ids=["long", "endless", "cut", "ELF cut", "table", "endless table", "section", "endless section"],
)
def test_a_program_survives_its_own_damaged_image(image: bytes) -> None:
    assert Edge(image).pick() == INVALID_IMAGE


def test_a_wrapper_is_looked_into() -> None:
    text = Entry(PTX, 75, b"text")
    assert pick(Wrapped(1, container(text), [])) == container(text)


def test_a_wrapper_holds_a_fatbin_and_no_other_wrapper() -> None:
    wrapped = Wrapped(1, container(), [])
    wrapped.wrapper.data = ctypes.addressof(wrapped.wrapper)
    assert pick(wrapped) == INVALID_IMAGE


def test_what_nvcc_linked_goes_before_its_parts() -> None:
    linked = Entry(ELF, 80, b"linked")
    wrapped = Wrapped(2, container(linked), [container(Entry(ELF, 80, b"part"))])
    assert pick(wrapped) == container(linked)


def unpacked(shipped: bytes, sizes: list[int]) -> list[bytes]:
    """The first bytes of each part, as the server's driver finds them."""
    buffer = ctypes.create_string_buffer(shipped, len(shipped))
    address = LIBRARY.gf_link_set_wrap(buffer, ctypes.c_size_t(len(shipped)))
    wrapper = Wrapper.from_address(address)
    listed = (ctypes.c_void_p * (len(sizes) + 1)).from_address(wrapper.rest or 0)
    assert (wrapper.magic, wrapper.version, listed[len(sizes)]) == (0x466243B1, 2, None)
    parts = [ctypes.string_at(listed[i] or 0, size) for i, size in enumerate(sizes)]
    LIBC.free(ctypes.c_void_p(address))
    for size in range(len(shipped)):
        assert LIBRARY.gf_link_set_wrap(buffer, ctypes.c_size_t(size)) is None
    return parts


def test_parts_are_shipped_as_a_link_set_and_unpacked_on_the_server() -> None:
    parts = [container(Entry(PTX, 80, b"one"), Entry(PTX, 90, b"too new")), container(Entry(PTX, 75, b"two"))]
    shipped = pick(Wrapped(2, container(), parts))
    wanted = [container(Entry(PTX, 80, b"one")), container(Entry(PTX, 75, b"two"))]
    assert isinstance(shipped, bytes)
    assert unpacked(shipped, [len(each) for each in wanted]) == wanted


def test_a_part_that_does_not_suit_the_device_is_shipped_empty() -> None:
    """A library's machine code for other devices: whether anything of it is missed, the driver finds out."""
    other = container(Entry(ELF, 75, b"other"), Entry(PTX, 121, b"too new"))
    suits = container(Entry(PTX, 80, b"one"))
    shipped = pick(Wrapped(2, container(), [other, suits]))
    assert isinstance(shipped, bytes)
    assert unpacked(shipped, [len(container()), len(suits)]) == [container(), suits]
    assert pick(Wrapped(2, container(), [other, other])) == NO_BINARY_FOR_GPU
    assert pick(Wrapped(2, container(), [])) == NO_BINARY_FOR_GPU
