"""cuLink*: what the server keeps of a link, and what it grants and refuses a guest that lies."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.apiserver import links
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle
from tests.apiserver.links import ANSWER, CALLER, FATBINARY, FUNCTION, LINK, NO_OPTIONS, PRIVATE, PTX, WORD

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_PTX = 1, 2, 200, 218
INVALID_CONTEXT, INVALID_HANDLE, UNKNOWN = 201, 400, 999
CONTEXT, THERE = handle("context", 1), 2  # and what headers say of it
LIBRARY = handle("library", 3)
MIB = 1 << 20
LIMIT, LEAST = 512 * MIB, 128 << 10  # of what links may hold, and what a link or an input counts at least


@pytest.fixture
def guest(engine: Engine) -> Iterator[Guest]:
    """Of a session with a second context, that must end without a trace."""
    guest = engine.session()
    guest.send("cuCtxCreate_v2", pctx=CONTEXT, flags=0, dev=0)
    guest.map()
    yield guest
    guest.close()
    assert engine.ended() == ("closed", True)


def test_inputs_become_an_image_that_need_not_be_sent_back(guest: Guest) -> None:
    assert links.create(guest).status == 0
    links.add_all(guest)
    reply = links.complete(guest)
    image = links.image_of(reply)
    assert image[:4] == b"\x7fELF"
    assert len(image) == reply.values["size"]
    assert links.answer(guest, image, LIBRARY, guest.window) == ANSWER
    guest.send("cuLinkDestroy", state=LINK)
    assert links.answer(guest, image, handle("library", 4), guest.window) == ANSWER


def test_an_input_is_sent_once(guest: Guest) -> None:
    assert links.create(guest).status == 0
    digest = links.ship(guest, PRIVATE)
    unknown = guest.answer(links.ask(guest, bytes(32), len(PRIVATE)))
    assert (unknown.status, unknown.values["known"], unknown.payload) == (0, 0, b"")
    other_size = guest.answer(links.ask(guest, digest, len(PRIVATE) + 1))
    assert (other_size.status, other_size.values["known"]) == (0, 0)
    for _ in range(2):
        assert guest.answer(links.ask(guest, digest, len(PRIVATE))).values["known"] == 1


def test_bytes_that_do_not_have_their_hash(guest: Guest) -> None:
    assert links.create(guest).status == 0
    links.ship(guest, PRIVATE, bytes(32))
    assert guest.answer(links.ask(guest, bytes(32), len(PRIVATE))).status == INVALID_IMAGE
    assert guest.answer(links.ask(guest, bytes(32), len(PRIVATE))).values["known"] == 0  # not kept
    assert links.add(guest, PRIVATE).status == 0


def test_an_address_of_this_process_is_no_fatbin(guest: Guest) -> None:
    """A wrapper says where in memory a fatbin is: whoever follows that reads what the guest wants."""
    assert links.create(guest).status == 0
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, 0xDEAD0000, 0)
    assert links.add(guest, wrapper, FATBINARY).status == INVALID_IMAGE
    assert links.add(guest, wrapper, PTX).status in (INVALID_IMAGE, INVALID_PTX)


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (struct.pack("<IIQ", 0x4B4C4647, 1, 16) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0), FATBINARY),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 30), FATBINARY),
        (b"!<arch>\n" + b"a" * 48 + b"999999999 `\n", 4),
        (b"GFSIMLNK" + bytes(64), 0),
    ],
    ids=["a link set", "a fatbin that is cut short", "a library that is cut short", "the inside of a link"],
)
def test_inputs_are_measured_before_a_driver_sees_them(guest: Guest, image: bytes, kind: int) -> None:
    assert links.create(guest).status == 0
    reply = links.add(guest, image, kind)
    assert (reply.status, reply.payload.startswith(b"gpuferry: no image: ")) == (INVALID_IMAGE, True)
    assert links.add(guest, PRIVATE).status == 0


def test_what_was_said_of_a_step_comes_with_its_answer_alone(guest: Guest) -> None:
    assert links.create(guest).status == 0
    fine = links.add(guest, CALLER, name=b"the caller")
    assert (fine.status, fine.values["error_size"]) == (0, 0)
    broken = links.add(guest, links.HEAD + b"nonsense\n\0")
    assert broken.status == INVALID_PTX
    assert len(broken.payload) == broken.values["error_size"] + broken.values["info_size"] > 0
    unresolved = links.complete(guest)
    assert (unresolved.status, unresolved.values["size"]) == (UNKNOWN, 0)
    assert b"the caller" in unresolved.payload[: unresolved.values["error_size"]]
    assert broken.payload not in unresolved.payload


def test_the_rest_of_a_linked_image_is_read_in_pieces(guest: Guest) -> None:
    def read(offset: int, size: int) -> tuple[int, bytes]:
        reply = guest.call("sessionLinkImage", link=LINK, offset=offset, size=size)
        return reply.status, reply.payload

    assert links.create(guest).status == 0
    links.add_all(guest)
    assert read(0, 1) == (INVALID_VALUE, b"")  # there is none yet
    image = links.image_of(links.complete(guest))
    size = len(image)
    assert read(0, size) == (0, image)
    assert read(100, 50) == (0, image[100:150])
    for offset, length in ((0, size + 1), (size, 1), (1, size), ((1 << 64) - 1, 1), ((1 << 64) - 8, 16)):
        assert read(offset, length) == (INVALID_VALUE, b"")


def test_a_complete_link_takes_no_more(guest: Guest) -> None:
    assert links.create(guest).status == 0
    links.add_all(guest)
    assert links.complete(guest).status == 0
    assert links.add(guest, PRIVATE).status == INVALID_VALUE
    assert links.complete(guest).status == INVALID_HANDLE


def test_a_link_that_is_there_already_is_not_made(guest: Guest) -> None:
    assert links.create(guest).status == 0
    links.add_all(guest)
    assert links.create(guest).status == INVALID_HANDLE
    assert links.complete(guest).status == 0


def test_options_of_the_guest_that_nobody_knows(guest: Guest) -> None:
    for option, wanted in ((1000, INVALID_VALUE), (5, 801)):  # 5: memory of the program
        payload = struct.pack("<III", 1, option, 0)
        assert guest.call("cuLinkCreate_v2", stateOut=LINK, payload=payload).status == wanted
    assert links.create(guest).status == 0


def test_a_link_ends_with_its_context(guest: Guest) -> None:
    assert links.create(guest, context=THERE).status == 0
    links.add_all(guest)
    guest.send("cuCtxDestroy_v2", ctx=CONTEXT)
    assert links.complete(guest).status == INVALID_HANDLE
    assert links.create(guest).status == 0  # the handle is free


def test_a_link_is_ended_when_its_last_step_is_over(guest: Guest) -> None:
    """No step is waited for before."""
    assert links.create(guest).status == 0
    steps = [links.ask(guest, links.ship(guest, i), len(i)) for i in (CALLER, FUNCTION, WORD)]
    steps.append(guest.ask("sessionLinkComplete", link=LINK))
    guest.send("cuLinkDestroy", state=LINK)
    late = links.ask(guest, links.ship(guest, PRIVATE), len(PRIVATE))
    assert [guest.answer(step).status for step in steps] == [0, 0, 0, 0]
    assert guest.answer(late).status == INVALID_HANDLE


def test_steps_of_a_session_that_ends_meanwhile(engine: Engine) -> None:
    guest = engine.session()
    assert links.create(guest).status == 0
    for image in (CALLER, FUNCTION, WORD):
        links.ask(guest, links.ship(guest, image), len(image))
    guest.ask("sessionLinkComplete", link=LINK)
    guest.socket.close()
    assert engine.ended() == ("connection lost", True)


def test_links_without_number(guest: Guest) -> None:
    """A session may have so many; one that ends makes room for another."""
    many = LIMIT // LEAST
    for slot in range(many):
        assert links.create(guest, handle("link", slot)).status == 0
    assert links.create(guest, handle("link", many)).status == OUT_OF_MEMORY
    assert links.add(guest, PRIVATE).status == OUT_OF_MEMORY
    guest.send("cuLinkDestroy", state=handle("link", 7))
    assert links.create(guest, handle("link", many)).status == 0


def test_inputs_without_end(guest: Guest) -> None:
    """The driver copies each, however often it is the same one."""
    large = PRIVATE + bytes(100 * MIB - len(PRIVATE))
    digest = links.ship(guest, large)
    assert links.create(guest).status == 0
    for _ in range(5):
        assert guest.answer(links.ask(guest, digest, len(large))).status == 0
    assert guest.answer(links.ask(guest, digest, len(large))).status == OUT_OF_MEMORY
    assert links.add(guest, PRIVATE).status == 0
    guest.send("cuLinkDestroy", state=LINK)
    assert links.create(guest).status == 0
    assert guest.answer(links.ask(guest, digest, len(large))).status == 0


@pytest.mark.system
def test_an_input_that_was_refused_counts_no_more(guest: Guest) -> None:
    large = b"nonsense\0" + bytes(200 * MIB)
    digest = links.ship(guest, large)
    assert links.create(guest).status == 0
    for _ in range(4):
        assert guest.answer(links.ask(guest, digest, len(large))).status == INVALID_PTX


def test_a_name_that_is_too_long(guest: Guest) -> None:
    assert links.create(guest).status == 0
    digest = links.ship(guest, PRIVATE)
    name = b"n" * 4097
    reply = guest.answer(links.ask(guest, digest, len(PRIVATE), name=name))
    assert reply.status == INVALID_VALUE
    assert links.add(guest, PRIVATE, name=name[1:]).status == 0


def test_no_context(guest: Guest) -> None:
    assert links.create(guest, context=0).status == INVALID_CONTEXT
    assert (
        guest.call("cuLinkCreate_v2", context=9, stateOut=LINK, payload=NO_OPTIONS).status == INVALID_CONTEXT
    )
