"""Programs whose guest library speaks TLS: what they do, what is on the wire, and who is not believed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from gpuferry.monitor.service import authority
from gpuferry.specs._generated import frames

from tests.helpers.certificates import Certificates
from tests.helpers.door import Between, Pair
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import ROUND_TRIP
from tests.helpers.running import TIMEOUT, Outcome, guest_environment, native_environment, run
from tests.resume.cutter import Allowance, Cutter
from tests.resume.running import RECONNECT, built, native, same

PYTHON = [sys.executable, "-c", ROUND_TRIP]
PATTERN = bytes(range(256))  # of what ROUND_TRIP copies
# Threads, copies both ways from both kinds of memory, printf of kernels, an error, more than buffers hold.
PROGRAMS = ("count_exactly", "full_duplex", "pinned_pipeline", "device_printf", "illegal_address", "big_copy")


@pytest.fixture(scope="module")
def secure(certificates: Certificates) -> Iterator[Monitor]:
    with monitor("--pool", "2", "--handshake-timeout", "5", *certificates.flags()) as running:
        yield running


@pytest.fixture(scope="module")
def clear() -> Iterator[Monitor]:
    with monitor("--pool", "1", in_clear=True) as running:
        yield running


def through(between: Between, secure: Monitor, command: list[str], **settings: str) -> Outcome:
    """A program that reaches the monitor by way of `between`."""
    scheme = "tls://" if secure.authority else ""
    chosen = {**secure.settings(), "GPUFERRY_MONITOR": scheme + between.address, **settings}
    return run(command, guest_environment(chosen))


@pytest.mark.some(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_what_they_do_in_clear(secure: Monitor, name: str) -> None:
    assert secure.tcp.startswith("tls://")
    there = secure.run([built(name)])
    here = native(name)
    assert (there.status, sorted(there.stdout.splitlines())) == (
        here.status,
        sorted(here.stdout.splitlines()),
    ), there.stderr


class Listener(Between):
    """Hears everything that goes by, and may change it."""

    def __init__(self, target: str, change: Callable[[bytes, bool], bytes] = lambda data, up: data) -> None:
        super().__init__(target)
        self._parts: list[bytes] = []
        self._change = change

    @property
    def heard(self) -> bytes:
        return b"".join(self._parts)

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        near, far = pair
        return partial(self._pump, near, far, True), partial(self._pump, far, near, False)

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._parts.append(data)  # nothing is lost of two threads' words
                sink.sendall(self._change(data, up))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_nothing_can_be_read_on_the_way(secure: Monitor, clear: Monitor) -> None:
    """Neither data nor what a guest says of itself; the same ear hears both where there is no TLS."""
    with Listener(secure.tcp) as ear:
        outcome = through(ear, secure, PYTHON, GPUFERRY_FUNCTION="a secret name")
        assert outcome.stdout == "same\n", outcome.stderr
        assert len(ear.heard) > 2 << 20
        assert PATTERN not in ear.heard
        assert b"a secret name" not in ear.heard
        assert secure.token.encode() not in ear.heard
    with Listener(clear.tcp) as ear:
        assert through(ear, clear, PYTHON, GPUFERRY_FUNCTION="a secret name").stdout == "same\n"
        assert PATTERN in ear.heard
        assert b"a secret name" in ear.heard


class Flip:
    """Changes one bit of a byte that comes after so many others, in one direction."""

    def __init__(self, after: int, up: bool) -> None:
        self._left = after
        self._up = up
        self.done = False

    def __call__(self, data: bytes, up: bool) -> bytes:
        if up != self._up or self.done:
            return data
        if self._left >= len(data):
            self._left -= len(data)
            return data
        self.done = True
        at = self._left
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("up", [True, False], ids=["to the server", "to the guest"])
@pytest.mark.parametrize("after", [200, 3000, 300_000])
def test_a_changed_bit_ends_the_session(secure: Monitor, after: int, up: bool) -> None:
    """Wherever it is: the program gets an error and never other data."""
    flip = Flip(after, up)
    with Listener(secure.tcp, flip) as middle:
        outcome = through(middle, secure, PYTHON)
    assert flip.done
    assert outcome.status != 0
    assert outcome.stdout == ""
    assert "gpuferry[" in outcome.stderr


@pytest.mark.parametrize("up", [True, False], ids=["to the server", "to the guest"])
def test_a_session_that_may_be_resumed_goes_on(secure: Monitor, up: bool) -> None:
    """On another connection, behind the last record that was authentic."""
    flip = Flip(300_000, up)
    with Listener(secure.tcp, flip) as middle:
        outcome = through(middle, secure, PYTHON, **RECONNECT)
        assert flip.done
        assert (outcome.status, outcome.stdout) == (0, "same\n"), outcome.stderr
        assert middle.connections == 2


def at_random(seed: int, most: int) -> Iterator[Allowance]:
    chance = random.Random(seed)
    while True:
        yield chance.randint(8000, 8000 + most), chance.randint(8000, 8000 + most)


@pytest.mark.parametrize(
    ("name", "most"),
    [("count_exactly", 40_000), pytest.param("full_duplex", 4_000_000, marks=pytest.mark.slow)],
)
def test_cut_at_random(secure: Monitor, name: str, most: int) -> None:
    """Many times in one program; each connection shakes hands anew."""
    with Cutter(secure.tcp, at_random(1, most)) as cutter:
        same(through(cutter, secure, [str(built(name))], **RECONNECT), name)
        assert cutter.cuts > 0


def test_who_is_dropped_within_the_tls_handshake_comes_again(secure: Monitor) -> None:
    """As in clear: a monitor with too many handshakes of one machine ends the oldest, whoever that is."""
    with Cutter(secure.tcp, [(None, 10), (100, None)]) as cutter:
        outcome = through(cutter, secure, PYTHON)
        assert (outcome.status, outcome.stderr, cutter.cuts) == (0, "", 2)


def test_who_is_dropped_there_again_and_again_is_told(secure: Monitor) -> None:
    with Cutter(secure.tcp, [(None, 10)] * 100) as cutter:
        refused(through(cutter, secure, PYTHON), "closed the connection during the TLS handshake")
        assert cutter.cuts == 5


# -- who is not believed


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.status != 0
    assert outcome.stdout == ""
    for word in words:
        assert word in outcome.stderr, outcome.stderr


def test_a_server_of_another_authority(secure: Monitor, tmp_path: Path) -> None:
    authority.make_authority(tmp_path)
    refused(
        secure.run(PYTHON, extra={"GPUFERRY_TLS_CA": str(tmp_path / "ca.crt")}),
        "no authority",
        "GPUFERRY_TLS_CA",
    )


def test_a_server_of_an_authority_that_nobody_named(secure: Monitor) -> None:
    refused(secure.run(PYTHON, extra={"GPUFERRY_TLS_CA": ""}), "no authority", "the system's store")


def test_a_server_with_another_name(secure: Monitor) -> None:
    refused(secure.run(PYTHON, extra={"GPUFERRY_TLS_NAME": "gpu-b"}), "not for gpu-b", "GPUFERRY_TLS_NAME")
    assert secure.run(PYTHON, extra={"GPUFERRY_TLS_NAME": "localhost"}).stdout == "same\n"


def test_a_file_that_names_no_authority(secure: Monitor, tmp_path: Path) -> None:
    refused(secure.run(PYTHON, extra={"GPUFERRY_TLS_CA": str(tmp_path / "none")}), str(tmp_path / "none"))


def test_a_server_without_tls(secure: Monitor, clear: Monitor) -> None:
    refused(secure.run(PYTHON, extra={"GPUFERRY_MONITOR": "tls://" + clear.tcp}), "it speaks no TLS")


def test_a_guest_without_tls_is_told(secure: Monitor) -> None:
    """In clear, when it has said nothing for as long as a handshake may take."""
    in_clear = {"GPUFERRY_MONITOR": secure.tcp.removeprefix("tls://")}
    refused(secure.run(PYTHON, extra=in_clear), "speaks TLS only", "GPUFERRY_MONITOR=tls://")


def test_without_libssl_it_says_so(secure: Monitor, tmp_path: Path) -> None:
    """The program's machine has none: a loader that does not find it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a mount namespace hides the library")
    folder = next(path for path in (Path("/lib/x86_64-linux-gnu"), Path("/usr/lib64")) if path.exists())
    found = " ".join(str(path) for path in folder.glob("libssl.so*"))
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    hide = f'for one in {found}; do mount --bind {empty} $one; done; exec "$0" "$@"'
    program = built("vector_add_driver")
    outcome = run(["unshare", "-m", "sh", "-c", hide, str(program)], guest_environment(secure.settings()))
    assert outcome.status != 0
    assert "libssl" in outcome.stderr
    assert "install" in outcome.stderr


# -- who comes to the port


def connect(secure: Monitor) -> socket.socket:
    host, _, port = secure.tcp.removeprefix("tls://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(TIMEOUT)
    return connection


def text_of(connection: socket.socket) -> str:
    """The text of the REFUSED that comes in clear."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(4096):
            data += part
    return data[24:].decode()


def client_context(secure: Monitor) -> ssl.SSLContext:
    assert secure.authority
    context = ssl.create_default_context(cafile=secure.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def test_plain_bytes_are_told_at_once(secure: Monitor) -> None:
    with connect(secure) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert "speaks TLS only" in text_of(connection)


def test_half_a_handshake_ends_when_its_time_is_over(secure: Monitor) -> None:
    """And keeps nobody out."""
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(connect(secure)) for _ in range(140)]  # more than wait at once
        for half in halves:
            half.sendall(bytes([22, 3, 1, 2, 0]) + bytes(100))
        assert secure.run(PYTHON).stdout == "same\n"
        for half in halves:
            with contextlib.suppress(ConnectionResetError):
                assert half.recv(1) == b""  # closed: nothing of ours can be said there


def test_older_tls_is_refused(secure: Monitor) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connect(secure) as connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection)


def test_a_cipher_suite_that_is_not_spoken_here_ends_its_own_connection(secure: Monitor) -> None:
    """Python's ssl agrees on it. The records are not ours to write: it is told so by the end, and at once."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("needs OpenSSL's command: Python's ssl cannot ask for one suite alone")
    address = secure.tcp.removeprefix("tls://")
    asking = ["s_client", "-connect", address, "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", "-ign_eof"]
    outcome = run([openssl, *asking], native_environment())
    assert "Cipher is TLS_CHACHA20_POLY1305_SHA256" in outcome.stdout, outcome.stderr
    assert "Exception in callback" not in secure.log.read_text()


def test_the_handshake_shows_no_ticket(secure: Monitor) -> None:
    """What comes behind it is GREETING, in one record, and nothing more."""
    with client_context(secure).wrap_socket(connect(secure), server_hostname="localhost") as secured:
        greeting = secured.recv(4096)
        assert greeting[16:24] == frames.MAGIC
        secured.settimeout(0.1)
        with pytest.raises(TimeoutError):
            secured.recv(1)
        assert secured.session is None or not secured.session.has_ticket


@pytest.mark.parametrize(
    "junk", [b"\x17\x03\x03\x00\x40" + bytes(64), frames.MAGIC * 8], ids=["record", "clear"]
)
def test_junk_after_the_handshake_is_no_hello(secure: Monitor, junk: bytes) -> None:
    """Bytes past the library: the connection ends, and the monitor goes on."""
    with connect(secure) as connection:
        context = client_context(secure)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(1 << 16))
        connection.sendall(outgoing.read() + junk)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass
    assert secure.run(PYTHON).stdout == "same\n"


def test_a_program_on_the_machine_itself_needs_no_tls(secure: Monitor) -> None:
    assert secure.run(PYTHON, "unix").stdout == run(PYTHON, native_environment()).stdout
