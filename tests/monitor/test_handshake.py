"""What comes before WELCOME: every wrong guest is told why, and no right one notices."""

from __future__ import annotations

import re
import secrets
import socket
import struct
from collections.abc import Iterator

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.monitor.door.listener import SO_PASSRIGHTS
from gpuferry.specs._generated import frames, operations
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import processes
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused, connect, hello_frame, outcome, read_greeting

REASON = handshake.Reason


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "4") as running:
        yield running


@pytest.fixture(autouse=True)
def _others_go_on(monitor: harness.Monitor) -> Iterator[None]:
    """A session that is open while the wrong guest tries keeps working."""
    with FakeGuest(monitor.address, monitor.token) as other:
        assert other.echo(b"before") == b"before"
        yield
        assert other.echo(b"after") == b"after"


def refused(monitor: harness.Monitor, **changes: object) -> Refused:
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.address, changes.pop("token", monitor.token), **changes)  # type: ignore[arg-type]
    return caught.value


def sends(monitor: harness.Monitor, data: bytes) -> Refused:
    with connect(monitor.address) as connection:
        read_greeting(connection)
        connection.sendall(data)
        with pytest.raises(Refused) as caught:
            outcome(connection)
        return caught.value


@pytest.mark.parametrize("transport", ["address", "tcp"])
def test_both_sides_prove_the_token(monitor: harness.Monitor, transport: str) -> None:
    with FakeGuest(getattr(monitor, transport), monitor.token) as guest:
        assert guest.proven
        assert guest.echo(b"x" * 100_000) == b"x" * 100_000


def test_welcome_is_the_api_servers_but_for_four_fields() -> None:
    header = bytes(range(frames.Header.SIZE))
    template = header + frames.Welcome(b"", 0, 1, 2, 0, 3, 4, 5, 6, 7, 0).pack() + b"device"
    frame = handshake.welcome(template, b"p" * 32, 8, 9, 10)
    assert frame.startswith(header)
    assert frame.endswith(b"device")
    assert frames.Welcome.unpack(frame, len(header)) == (b"p" * 32, 8, 1, 2, 9, 3, 4, 5, 6, 7, 10)


def test_wrong_token(monitor: harness.Monitor) -> None:
    refusal = refused(monitor, token="0" * 64)
    assert (refusal.reason, refusal.cuda_error) == (REASON.DENIED, 800)
    assert "GPUFERRY_TOKEN" in refusal.text


def test_the_token_is_not_in_the_log_nor_in_argv(monitor: harness.Monitor) -> None:
    refused(monitor, token="0" * 64)
    assert monitor.token not in monitor.log.read_text()
    told = [processes.told_of(pid, "cmdline") for pid in processes.descendants(monitor.process.pid)]
    assert any(told)
    assert not any(monitor.token in each for each in told)


def test_a_recorded_hello_is_useless(monitor: harness.Monitor) -> None:
    with connect(monitor.address) as connection:
        recorded = hello_frame(read_greeting(connection), monitor.token)
    assert sends(monitor, recorded).reason == REASON.DENIED


def test_a_changed_hello_is_denied(monitor: harness.Monitor) -> None:
    with connect(monitor.address) as connection:
        frame = bytearray(hello_frame(read_greeting(connection), monitor.token))
        frame[100] ^= 1
        connection.sendall(frame)
        with pytest.raises(Refused) as caught:
            outcome(connection)
    assert caught.value.reason == REASON.DENIED


def test_wrong_version(monitor: harness.Monitor) -> None:
    refusal = refused(monitor, version=frames.PROTOCOL_VERSION + 1)
    assert refusal.reason == REASON.VERSION
    assert str(frames.PROTOCOL_VERSION + 1) in refusal.text


def test_another_version_may_have_another_hello(monitor: harness.Monitor) -> None:
    body = struct.pack("<H", 99) + b"whatever"
    header = frames.frame(frames.Frame.HELLO, body)[: frames.Header.SIZE]
    assert sends(monitor, header + body).reason == REASON.VERSION


def test_wrong_spec_names_both(monitor: harness.Monitor) -> None:
    other = secrets.token_bytes(32)
    refusal = refused(monitor, spec=other)
    assert refusal.reason == REASON.SPEC
    assert other.hex() in refusal.text
    assert operations.VERSION in refusal.text


def test_more_than_one_device(monitor: harness.Monitor) -> None:
    assert refused(monitor, devices=frames.DEVICES_MAX + 1).reason == REASON.BAD_REQUEST
    assert refused(monitor, devices=2).reason == REASON.NO_CAPACITY


def test_names_are_text(monitor: harness.Monitor) -> None:
    assert refused(monitor, program=b"\xff\xfe").reason == REASON.MALFORMED
    assert refused(monitor, function=b"two\nlines").reason == REASON.MALFORMED


def test_a_program_named_with_what_cannot_be_shown(monitor: harness.Monitor) -> None:
    """A guest has no table of characters, and U+3000 is what a Japanese keyboard's space bar writes."""
    with FakeGuest(monitor.address, monitor.token, program="学\u3000習".encode()):
        monitor.wait_for(lambda status: [s for s in status.sessions if s.program == "学?習"], "its session")


def test_a_hello_that_is_too_large(monitor: harness.Monitor) -> None:
    refusal = sends(monitor, frames.Header.LAYOUT.pack(1 << 20, frames.Frame.HELLO, 0, 0, 0))
    assert refusal.reason == REASON.MALFORMED
    assert "65536" in refusal.text


@pytest.mark.parametrize("size", [0, 15, 16, 17])
def test_a_hello_that_is_too_small(monitor: harness.Monitor, size: int) -> None:
    assert (
        sends(monitor, frames.Header.LAYOUT.pack(size, frames.Frame.HELLO, 0, 0, 0)).reason
        == REASON.MALFORMED
    )


def test_a_short_hello_of_this_version(monitor: harness.Monitor) -> None:
    body = struct.pack("<H", frames.PROTOCOL_VERSION) + bytes(50)
    header = frames.frame(frames.Frame.HELLO, body)[: frames.Header.SIZE]
    assert sends(monitor, header + body).reason == REASON.MALFORMED


def test_another_protocol(monitor: harness.Monitor) -> None:
    refusal = sends(monitor, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100_000)
    assert refusal.reason == REASON.MALFORMED
    assert "gpuferry" in refusal.text


@settings(max_examples=50, deadline=None)
@given(data=st.binary(min_size=16, max_size=600))
def test_garbage(monitor: harness.Monitor, data: bytes) -> None:
    assert sends(monitor, data).reason in (REASON.MALFORMED, REASON.VERSION)


def test_a_guest_that_says_nothing_more(monitor: harness.Monitor) -> None:
    """Half a HELLO, then silence: it costs its sender the connection. Others get in beside it: see
    test_several_guests_beside_one_that_says_nothing."""
    with harness.monitor("--pool", "1", "--handshake-timeout", "1") as impatient:
        silent = connect(impatient.address)
        slow = connect(impatient.address)
        frame = hello_frame(read_greeting(slow), impatient.token)
        slow.sendall(frame[:50])
        read_greeting(silent)
        for connection in (silent, slow):
            with connection, pytest.raises(Refused) as caught:
                outcome(connection)
            assert (caught.value.reason, caught.value.cuda_error) == (REASON.MALFORMED, 802)
            assert "within 1 s" in caught.value.text


def test_a_hello_in_pieces(monitor: harness.Monitor) -> None:
    with connect(monitor.address) as slow:
        frame = hello_frame(read_greeting(slow), monitor.token)
        for piece in (frame[:5], frame[5:50]):
            slow.sendall(piece)
            with FakeGuest(monitor.address, monitor.token) as guest:  # the monitor has read the piece by then
                assert guest.echo(b"meanwhile") == b"meanwhile"
        slow.sendall(frame[50:])
        assert outcome(slow)


def test_descriptors_are_not_taken(monitor: harness.Monitor) -> None:
    """The monitor would have their last close, which of a socket that lingers is a wait."""
    with connect(monitor.address) as connection, socket.socket() as lingers:
        read_greeting(connection)
        try:
            connection.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 1)
        except OSError:
            pytest.skip("no SO_PASSRIGHTS: it is of Linux 6.16")
        with pytest.raises(PermissionError):
            socket.send_fds(connection, [b"x"], [lingers.fileno()])


def test_several_guests_beside_one_that_says_nothing(monitor: harness.Monitor) -> None:
    """The door is never quiet; those who were granted get their API servers all the same."""
    with connect(monitor.address):
        guests = [FakeGuest(monitor.address, monitor.token, meet=False) for _ in range(2)]
        for guest in guests:
            with guest:
                guest.meet()
                assert guest.echo(b"in") == b"in"


def test_many_half_open_connections(monitor: harness.Monitor) -> None:
    half_open = [connect(monitor.tcp) for _ in range(60)]
    with FakeGuest(monitor.tcp, monitor.token) as guest:
        assert guest.echo(b"still") == b"still"
    for connection in half_open:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        connection.close()


def test_refusals_are_counted_and_logged(monitor: harness.Monitor) -> None:
    before = monitor.status().monitor.sessions_refused
    refused(monitor, token="1" * 64)
    assert monitor.status().monitor.sessions_refused == before + 1
    assert re.search(r'"event": "refused".*"reason": "DENIED"', monitor.log.read_text())


def test_labels_take_no_more_than_a_kilobyte(monitor: harness.Monitor) -> None:
    labels = ",".join(f"name{number}=value" for number in range(200)).encode()
    answer = refused(monitor, extensions={handshake.Extension.LABELS: labels})
    assert answer.reason == REASON.BAD_REQUEST
    assert "at most 1024 are possible" in answer.text
