"""A link's inputs go over once, what the linker says is added up, and what it makes is kept here."""

from __future__ import annotations

import hashlib
import struct

import pytest
from gpuferry.specs._generated.frames import CHUNK

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame

TEXT = b".version 8.0 .target sm_80\0"
INVALID_HANDLE, OUT_OF_MEMORY, INVALID_PTX = 400, 2, 218
BEGIN = f"""
start()
link = u64()
ok("cuLinkCreate_v2", 0, 0, 0, byref(link))
def add(text={TEXT!r}, kind=1):
    return cu("cuLinkAddData_v2", link.value, kind, text, len(text), b"name", 0, 0, 0)
"""


def added(known: int = 1, error: bytes = b"", info: bytes = b"") -> bytes:
    return struct.pack("<III", known, len(error), len(info)) + error + info


def completed(image: bytes, error: bytes = b"", info: bytes = b"", size: int | None = None) -> bytes:
    whole = len(image) if size is None else size
    return struct.pack("<QQII", whole, 7, len(error), len(info)) + error + info + image


def answers(server: FakeServer, **left: list[Answer]) -> None:
    """To each operation one after another, and zeroes to all else."""

    def answer(frame: Frame) -> Answer:
        return left[frame.name].pop(0) if frame.name in left else Answer()

    server.answer = answer


def test_an_input_goes_over_once_and_again_if_it_was_forgotten(server: FakeServer, guest: Guest) -> None:
    fine = Answer(body=added())
    answers(server, sessionLinkAdd=[fine, fine, Answer(body=added(known=0)), fine])
    assert guest(BEGIN + "assert add() == add() == add() == 0").status == 0
    names = [name for name in server.names if "session" in name]
    once, again = ["sessionImageData", "sessionLinkAdd"], ["sessionLinkAdd"]
    assert names == [*once, *again, *again, *once, "sessionClose"]
    data, first = server.frames[1:3]
    assert data.body == hashlib.sha256(TEXT).digest() + struct.pack("<QQ", len(TEXT), 0) + TEXT
    link, digest, size, kind, name_size = struct.unpack_from("<Q32sQII", first.body)
    assert (link >> 40 & 0xFF, digest, size, kind, name_size) == (9, data.body[:32], len(TEXT), 1, 4)
    assert first.body[56:].startswith(b"name")


def test_a_fatbin_that_a_wrapper_names_goes_over_without_it(server: FakeServer, guest: Guest) -> None:
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 8) + b"contents"
    answers(server, sessionLinkAdd=[Answer(body=added())])
    outcome = guest(
        BEGIN
        + f"""
fatbin = ctypes.create_string_buffer({fatbin!r}, {len(fatbin)})
assert add(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(fatbin), 0), 2) == 0
print(add(struct.pack("<IIQQ", 0x466243B1, 1, 0, 0), 2))
"""
    )
    assert outcome.stdout == "200\n", outcome.stderr
    data = next(frame for frame in server.frames if frame.name == "sessionImageData")
    assert data.body[48:] == fatbin


def test_what_the_linker_says_is_added_up(server: FakeServer, guest: Guest) -> None:
    answers(
        server,
        sessionLinkAdd=[
            Answer(body=added(info=b"one.")),
            Answer(status=INVALID_PTX, body=added(error=b"bad ", info=b"two.")),
        ],
        sessionLinkComplete=[Answer(status=OUT_OF_MEMORY, body=completed(b"", b"again", b"three."))],
    )
    outcome = guest(
        f"""
start()
error, info, link = ctypes.create_string_buffer(64), ctypes.create_string_buffer(8), u64()
options = (u32 * 5)(5, 6, 3, 4, 2)
values = (u64 * 5)(ctypes.addressof(error), 64, ctypes.addressof(info), 8, 0)
ok("cuLinkCreate_v2", 5, options, values, byref(link))
for _ in range(2):
    print(cu("cuLinkAddData_v2", link.value, 1, {TEXT!r}, 5, b"name", 0, 0, 0), error.value, info.value)
result = cu("cuLinkComplete", link.value, byref(u64()), 0)
print(result, error.value, info.value, values[1], values[3], values[4] > 0)
"""
    )
    assert outcome.stdout.splitlines() == [
        "0 b'' b'one.'",
        "218 b'bad ' b'one.two'",
        "2 b'bad again' b'one.two' 9 7 True",
    ], outcome.stderr


@pytest.mark.parametrize("came", [0, 1000, CHUNK])
def test_the_rest_of_a_large_image_is_asked_for(server: FakeServer, guest: Guest, came: int) -> None:
    image = hashlib.sha256(b"image").digest() * (2 * CHUNK // 32) + b"tail"

    def answer(frame: Frame) -> Answer:
        if frame.name == "sessionLinkComplete":
            return Answer(body=completed(image[:came], info=b"text", size=len(image)))
        if frame.name == "sessionLinkImage":
            _, offset, size = struct.unpack("<QQQ", frame.body)
            return Answer(body=image[offset : offset + size])
        return Answer()

    server.answer = answer
    outcome = guest(
        BEGIN
        + """
import hashlib
image, size = u64(), u64()
ok("cuLinkComplete", link.value, byref(image), byref(size))
print(hashlib.sha256(ctypes.string_at(image.value, size.value)).hexdigest())
print(cu("cuLinkComplete", link.value, byref(u64()), 0))
ok("cuLinkDestroy", link.value)
"""
    )
    assert outcome.stdout.split() == [hashlib.sha256(image).hexdigest(), "400"], outcome.stderr
    assert server.names.count("sessionLinkComplete") == 1
    assert server.names.count("sessionLinkImage") == -(-(len(image) - came) // CHUNK)


def test_a_link_that_is_made_and_not_given_is_ended(server: FakeServer, guest: Guest) -> None:
    """The answer tells of an earlier call's failure: the program is not given what was made."""
    answers(server, cuLinkCreate_v2=[Answer(latched=INVALID_HANDLE), Answer(status=OUT_OF_MEMORY)])
    outcome = guest(
        'start(); link = u64()\nfor _ in range(2): print(cu("cuLinkCreate_v2", 0, 0, 0, byref(link)))'
    )
    assert outcome.stdout == f"{INVALID_HANDLE}\n{OUT_OF_MEMORY}\n", outcome.stderr
    made, ended, refused = (frame for frame in server.frames if frame.name.startswith("cuLink"))
    assert [made.name, ended.name, refused.name] == ["cuLinkCreate_v2", "cuLinkDestroy", "cuLinkCreate_v2"]
    assert ended.body == made.body[:8]


def test_an_image_of_a_size_that_cannot_be(server: FakeServer, guest: Guest) -> None:
    """A server that is not what it should be wrote into memory that was not asked for."""
    everything = completed(bytes(1 << 20), size=2**64 - 1)
    answers(server, sessionLinkComplete=[Answer(body=everything)])
    outcome = guest(BEGIN + 'print(cu("cuLinkComplete", link.value, byref(u64()), byref(u64())))')
    assert outcome.stdout == f"{OUT_OF_MEMORY}\n", outcome.stderr
