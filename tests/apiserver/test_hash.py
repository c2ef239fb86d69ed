"""The hash of pages: both kernels against its definition, and every change of a word shows."""

from __future__ import annotations

import hashlib
import os
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle

PAGE = 2 << 20
PARTS, STEPS, CHAINS = 128, 128, 8
WORDS = PAGE // 8
Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def rotate(words: Words, by: int) -> Words:
    rotated: Words = words << np.uint64(by) | words >> np.uint64(64 - by)
    return rotated


def finish(state: Words) -> bytes:
    state ^= state >> np.uint64(29)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(32)
    return struct.pack("<Q", int(state.sum(dtype=np.uint64)))


def expected(page: bytes) -> bytes:
    """All chains at once."""
    units = np.frombuffer(page, np.uint64).reshape(PARTS, STEPS, 2, CHAINS)
    number = np.arange(PARTS * CHAINS, dtype=np.uint64).reshape(PARTS, CHAINS) * np.uint64(0x9E3779B97F4A7C15)
    a, b = number + np.uint64(0x243F6A8885A308D3), number + np.uint64(0x13198A2E03707344)
    for step in range(STEPS):
        v, w = units[:, step, 0], units[:, step, 1]
        v = v ^ rotate(w, 23)
        w = w + rotate(v, 41)
        a = rotate((a ^ v) * np.uint64(0x9FB21C651E98DF25), 32)
        b = rotate((b ^ w) * np.uint64(0xD6E8FEB86659FD93), 32)
    return finish(a) + finish(b)


@pytest.fixture(scope="module")
def guest(engine: Engine) -> Guest:
    guest = engine.session()
    guest.map(5)
    guest.sync()
    engine.call("alias")
    return guest


def hashes(engine: Engine, guest: Guest, count: int) -> list[bytes]:
    found = engine.call("hashes", [guest.window + i * PAGE for i in range(count)])
    return [found[at : at + 16] for at in range(0, len(found), 16)]


def write(guest: Guest, page: int, data: bytes) -> None:
    guest.write(guest.window + page * PAGE, data)
    guest.sync()


def test_it_is_what_it_is_defined_to_be(engine: Engine, guest: Guest) -> None:
    pages = [bytes(PAGE), os.urandom(PAGE), b"\xff" * PAGE, bytes(PAGE - 1) + b"\1", os.urandom(PAGE)]
    for i, page in enumerate(pages):
        write(guest, i, page)
    assert hashes(engine, guest, 5) == list(map(expected, pages))


@pytest.mark.system
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(word=st.integers(0, WORDS - 1), flipped=st.integers(1, (1 << 64) - 1))
def test_every_change_of_a_word_shows(engine: Engine, guest: Guest, word: int, flipped: int) -> None:
    """On pages of zeroes too, where little else is there to mix with."""
    write(guest, 0, bytes(PAGE))
    before = hashes(engine, guest, 1)
    guest.write(guest.window + 8 * word, struct.pack("<Q", flipped))
    guest.sync()
    assert hashes(engine, guest, 1) != before


@pytest.mark.system
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    places=st.sets(st.integers(0, 2047), min_size=2, max_size=4), bit=st.integers(0, 63), far=st.booleans()
)
def test_changes_that_look_alike_do_not_cancel(
    engine: Engine, guest: Guest, places: set[int], bit: int, far: bool
) -> None:
    """Signs that flip, values that are swapped: near each other, or in different parts."""
    page = bytearray(os.urandom(PAGE))
    write(guest, 0, bytes(page))
    before = hashes(engine, guest, 1)
    for place in places:
        at = 8 * place * (128 if far else 1)
        (value,) = struct.unpack_from("<Q", page, at)
        struct.pack_into("<Q", page, at, value ^ 1 << bit)
    write(guest, 0, bytes(page))
    assert hashes(engine, guest, 1) != before


def test_both_shapes_give_the_same(engine: Engine, guest: Guest) -> None:
    """The kernels as a program of its own would launch them: the engine takes the one that is faster here."""
    image = engine.call("hash_kernels") + b"\0"
    library = handle("library", 7)
    reply, kernels, log = guest.load(image, library, hashlib.sha256(image).digest())
    assert reply.status == 0, log
    pages = [os.urandom(PAGE), bytes(PAGE)]
    for i, page in enumerate(pages):
        write(guest, i, page)
    sums = guest.window + 4 * PAGE
    addresses = sums + 4096
    for slot, (name, blocks, threads) in enumerate((("in_sequence", 2, 1), ("side_by_side", 8, 256))):
        write(guest, 4, bytes(4096) + struct.pack("<2Q", guest.window, guest.window + PAGE))
        index = [kernel.name for kernel in kernels].index(name)
        function = handle("kernel", slot)
        guest.send("sessionGetFunction", function=function, owner=library, index=index)
        guest.launch(function, struct.pack("<QQ", addresses, sums), (blocks, 1, 1), (threads, 1, 1))
        assert guest.read(sums, 32) == b"".join(map(expected, pages)), name
