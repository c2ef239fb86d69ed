"""What attackers do to a GPU server on which a bystander's program runs (bystander.py)."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from gpuferry.monitor.door.handshake import resume_key
from gpuferry.specs._generated import control_pb2, control_pb2_grpc
from gpuferry.specs._generated.frames import PROTOCOL_VERSION, Frame, Resume, frame

from tests.apiserver import kernels
from tests.apiserver.arrays import description
from tests.apiserver.guest import Guest, handle
from tests.fuzz.changing import Changing
from tests.fuzz.hostile import Hostile
from tests.fuzz.images import ZSTD, container, entry
from tests.fuzz.parsers import TARGETS
from tests.monitor.fake_guest import connect, read_frame, read_greeting
from tests.registry.guest import Identity, Request, hello
from tests.resume.test_handshake import ask, resume_body

HELD = 150  # connections at once

LONG = b""".version 7.5
.target sm_80
.address_size 64
// %s
.visible .entry k(.param .u64 p)
{
    .reg .u32 %%r<3>;
    .reg .u64 %%d<2>;
    ld.param.u64 %%d1, [p];
    mov.u32 %%r1, %%tid.x;
    mov.u32 %%r2, %%ctaid.x;
    %s
    st.global.u32 [%%d1], %%r1;
    ret;
}
\0"""


@dataclass(frozen=True)
class Victim:
    """Where attackers go, and what they have."""

    tcp: str
    http: str
    control: str
    token: str

    def knock(self, token: str = "") -> socket.socket:
        """A connection on which HELLO was said."""
        connection = connect(self.tcp)
        greeting = read_greeting(connection)
        connection.sendall(hello(Identity(token or self.token), greeting, secrets.token_bytes(32), Request()))
        return connection

    def session(self) -> Guest:
        """A session of the attacker's. Raises Ended if it is refused."""
        guest = Guest(self.knock())
        guest.receive_welcome()
        return guest


def frames(victim: Victim) -> Iterator[None]:
    hostile = Hostile(1)
    while True:
        hostile.attack(victim.session())
        yield


def strangers(victim: Victim) -> Iterator[None]:
    target = TARGETS["hello"]
    changing = Changing(list(target.sound()), 1, target.words)
    while True:
        with connect(victim.tcp) as connection:
            connection.sendall(changing.next())
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        yield


def wrong_tokens(victim: Victim) -> Iterator[None]:
    while True:
        with victim.knock(victim.token[:-8] + secrets.token_hex(4)) as connection:
            connection.recv(1 << 16)
        yield


def crowd(come: Callable[[], socket.socket], says: bytes = b"") -> Iterator[None]:
    """Connections that say so much and no more; of the last ones, HELD stay open."""
    held: list[socket.socket] = []
    while True:
        held.append(come())
        held[-1].sendall(says)
        if len(held) > HELD:
            held.pop(0).close()
        yield


def silence(victim: Victim) -> Iterator[None]:
    return crowd(lambda: connect(victim.tcp))


def half_requests(victim: Victim) -> Iterator[None]:
    host, _, port = victim.http.removeprefix("http://").rpartition(":")
    return crowd(lambda: socket.create_connection((host, int(port))), b"GET / HTTP/1.1\r\nX-Slow: ")


def bodies_in_parts(victim: Victim) -> Iterator[None]:
    host, _, port = victim.http.removeprefix("http://").rpartition(":")
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"1\r\na\r\n" * 100_000)
        yield


def crowd_that_waits(victim: Victim) -> Iterator[None]:
    held: list[socket.socket] = []
    while True:
        held.append(victim.knock())
        if len(held) > HELD:
            held.pop(0).close()
        yield


def calls_of_control(victim: Victim) -> Iterator[None]:
    with grpc.insecure_channel(victim.control) as channel:
        stub = control_pb2_grpc.MonitorStub(channel)
        while True:
            with contextlib.suppress(grpc.RpcError):
                stub.Status(
                    control_pb2.StatusRequest(),
                    metadata=(("authorization", f"Bearer {victim.token}"),),
                    timeout=60,
                )
            yield


def calls_that_fail(victim: Victim) -> Iterator[None]:
    while True:
        guest = victim.session()
        for _ in range(20_000):
            guest.send("sessionMemMap", address=guest.window, size=1 << 40)
        guest.sync()
        guest.socket.close()
        yield


def handles(victim: Victim) -> Iterator[None]:
    while True:
        guest = victim.session()
        for slot in range(20_000):
            guest.send("cuEventCreate", phEvent=handle("event", slot), Flags=0)
        guest.sync()
        guest.socket.close()
        yield


def deaths_in_mid_copy(victim: Victim) -> Iterator[None]:
    while True:
        guest = victim.session()
        address = guest.map(4)
        guest.write(address, bytes(4 << 20))
        guest.ask_read(address, 4 << 20)
        guest.socket.close()
        yield


def memory(victim: Victim) -> Iterator[None]:
    while True:
        guest = victim.session()
        for page in range(64):
            guest.send("sessionMemMap", address=guest.window + page * (2 << 20), size=2 << 20)
            guest.write(guest.window + page * (2 << 20), bytes(2 << 20))
        guest.sync()
        guest.socket.close()
        yield


def kernels_that_are_long_to_compile(victim: Victim) -> Iterator[None]:
    while True:
        lines = b"".join(b"mad.lo.u32 %%r1, %%r2, %d, %%r1;\n" % (number % 977) for number in range(20_000))
        image = LONG % (secrets.token_hex(8).encode(), lines)
        guest = victim.session()
        guest.load(image, handle("library", 0), hashlib.sha256(image).digest())
        guest.send("sessionGetFunction", function=handle("kernel", 0), owner=handle("library", 0), index=0)
        guest.launch(handle("kernel", 0), struct.pack("<Q", guest.map()), block=(1, 1, 1))
        guest.sync()
        guest.socket.close()
        yield


def kernels_without_end(victim: Victim) -> Iterator[None]:
    while True:
        guest = victim.session()
        address = guest.map()
        kernels.bind(guest, "wait_for")
        guest.launch(handle("kernel", 0), struct.pack("<QQ", address, address + 8), block=(1, 1, 1))
        time.sleep(1.0)
        guest.socket.close()
        yield


def image_bombs(victim: Victim) -> Iterator[None]:
    """A few kilobytes that expand without end, and texts that take long to read; each a new image."""
    while True:
        guest = victim.session()
        for text in (kernels_text(b" " * (128 << 20)), b"/**/" * 200_000):
            image = container([entry(text, flags=ZSTD)]) + secrets.token_bytes(8)
            guest.load(image, handle("library", 0), hashlib.sha256(image).digest())
        guest.socket.close()
        yield


def kernels_text(filling: bytes) -> bytes:
    return b".version 8.0\n.target sm_80\n.address_size 64\n" + filling


def images_that_are_much_work(victim: Victim) -> Iterator[None]:
    """Kernels without number, a branch from each of many places to any other, more registers alive than there
    are, a table of a million numbers.
    """
    head = b".version 8.0\n.target sm_80\n.address_size 64\n"
    bodies = [
        b"".join(b".visible .entry k%d() { ret; }\n" % number for number in range(20_000)),
        b".global .u32 table[1000000] = {%s};\n.visible .entry k() { ret; }\n"
        % b",".join([b"1"] * 1_000_000),
        b".visible .entry k() {\n.reg .pred %q;\nsetp.eq.u32 %q, 1, 1;\n"
        + b"".join(b"L%d:\n@%%q bra L%d;\n" % (number, number * 7919 % 20_000) for number in range(20_000))
        + b"ret;\n}\n",
        b".visible .entry k() {\n.reg .u32 %r<20000>;\n.shared .u32 s[64];\n"
        + b"".join(
            b"ld.volatile.shared.u32 %%r%d, [s+%d];\n" % (each, each % 64 * 4) for each in range(20_000)
        )
        + b"".join(
            b"st.volatile.shared.u32 [s+%d], %%r%d;\n" % (each % 64 * 4, each) for each in range(20_000)
        )
        + b"ret;\n}\n",
    ]
    while True:
        for body in bodies:
            image = head + b"// %s\n" % secrets.token_hex(8).encode() + body + b"\0"
            guest = victim.session()
            guest.load(image, handle("library", 0), hashlib.sha256(image).digest())
            guest.send(
                "sessionGetFunction", function=handle("kernel", 0), owner=handle("library", 0), index=0
            )
            guest.launch(handle("kernel", 0), b"", block=(1, 1, 1))
            guest.ask("cuCtxSynchronize")
            yield
            time.sleep(2.0)  # it compiles meanwhile
            guest.socket.close()


def objects_without_number(victim: Victim) -> Iterator[None]:
    """Of each kind in turn, until it is refused; then its session ends with all of them."""
    shape = description(64, 64)
    while True:
        for kind in ("stream", "context", "array", "module", "mipmapped_array"):
            guest = victim.session()
            kernels.bind(guest, "scale")
            guest.send("cuEventCreate", phEvent=handle("event", 0), Flags=0)
            for slot in range(30_000):
                new = handle(kind, slot)
                if kind == "stream":
                    guest.send("cuStreamCreateWithPriority", phStream=new, flags=1, priority=0)
                    guest.send("cuEventRecordWithFlags", hEvent=handle("event", 0), hStream=new, flags=0)
                elif kind == "context" and slot:
                    guest.send("cuCtxCreate_v2", pctx=new, flags=0, dev=0)
                elif kind == "array":
                    guest.send("cuArray3DCreate_v2", pHandle=new, pAllocateArray=shape)
                elif kind == "mipmapped_array":
                    sizes: dict[str, Any] = {"pMipmappedArrayDesc": shape, "numMipmapLevels": 7}
                    guest.send("cuMipmappedArrayCreate", pHandle=new, **sizes)
                elif kind == "module":
                    guest.send("sessionGetModule", module=new, library=handle("library", 0))
            guest.sync()
            guest.socket.close()
            yield


def graphs_without_end(victim: Victim) -> Iterator[None]:
    """Of a hundred thousand nodes, each with many edges; and loops within loops, none of which ends."""
    exec_ = handle("graph_exec", 0)
    while True:
        guest = victim.session()
        guest.send("sessionGraphBegin", exec=exec_)
        for _ in range(100_000):
            guest.send("sessionGraphNode", exec=exec_, kind=0, subject=0)
        for target in range(1, 100_000, 500):
            edges = [
                (source, each)
                for each in range(target, target + 499)
                for source in range(max(0, each - 8), each)
            ]
            payload = b"".join(struct.pack("<II8x", *edge) for edge in edges)
            guest.send("sessionGraphEdges", exec=exec_, count=len(edges), payload=payload)
        guest.call("sessionGraphReady", exec=exec_, flags=0)
        for _ in range(10):
            guest.send("sessionGraphLaunch", exec=exec_, stream=0)
        guest.socket.close()
        yield
        guest = victim.session()
        guest.send("sessionGraphBegin", exec=exec_)
        for depth in range(64):
            values = {"graph": depth, "initial": 1, "flags": 1}
            made = guest.call("sessionGraphCondition", exec=exec_, wanted=0, **values).values["value"]
            guest.call("sessionGraphConditional", exec=exec_, value=made, graph=depth, type=1, size=1)
        for depth in range(64):
            guest.send("sessionGraphEnter", exec=exec_, graph=depth)
            guest.send("sessionGraphPlace", exec=exec_, conditional=depth)
        guest.call("sessionGraphReady", exec=exec_, flags=0)
        guest.send("sessionGraphLaunch", exec=exec_, stream=0)
        guest.ask("cuCtxSynchronize")
        time.sleep(1.0)
        guest.socket.close()
        yield


def printing(victim: Victim) -> Iterator[None]:
    """Kernels that print, of a program that goes without having read a line."""
    while True:
        guest = victim.session()
        kernel = kernels.bind(guest, "speak")
        for _ in range(200):
            guest.launch(kernel, b"", grid=(1000, 1, 1), block=(256, 1, 1))
        guest.ask("cuCtxSynchronize")
        time.sleep(0.5)  # what is printed piles up
        guest.socket.close()
        yield


def launches_behind_a_kernel_without_end(victim: Victim) -> Iterator[None]:
    """Until its launches wait; and memory is freed and allocated behind it, a quota at a time."""
    while True:
        guest = victim.session()
        guest.socket.settimeout(2)
        flag = guest.map()
        kernel = kernels.bind(guest, "wait_for")
        large = guest.quota - guest.granularity
        with contextlib.suppress(TimeoutError):
            for turn in range(4):
                address = guest.window + (1 + turn) * guest.quota
                guest.send("sessionMemMap", address=address, size=large)
                guest.launch(kernel, struct.pack("<QQ", flag, flag + 8), block=(1, 1, 1))
                guest.send("sessionMemUnmap", address=address, size=large)
            for _ in range(100_000):
                guest.launch(kernel, struct.pack("<QQ", flag, flag + 8), block=(1, 1, 1))
        guest.socket.close()
        yield


def resumes(victim: Victim) -> Iterator[None]:
    """Of sessions that there are, without their keys."""
    while True:
        for session in range(1, 20):
            with connect(victim.tcp) as connection:
                read_greeting(connection)
                resume = Resume(
                    PROTOCOL_VERSION, 0, secrets.token_bytes(32), session, 0, secrets.token_bytes(32)
                ).pack()
                connection.sendall(frame(Frame.RESUME, resume))
                connection.recv(1 << 16)
        yield


def finds(victim: Victim) -> Iterator[None]:
    """Of memory that others have exported, by guesses, each of which the monitor hears."""
    while True:
        guest = victim.session()
        for _ in range(500):
            asked = [
                guest.ask("sessionImportFind", session=session, token=secrets.token_bytes(32))
                for session in range(1, 33)
            ]
            for each in asked:
                guest.answer(each)
        guest.socket.close()
        yield


def half_handshakes(victim: Victim) -> Iterator[None]:
    """Of TLS: a ClientHello that begins and does not go on (with GPUFERRY_TEST_TLS=1)."""
    host, _, port = victim.tcp.removeprefix("tls://").rpartition(":")
    begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    return crowd(lambda: socket.create_connection((host, int(port))), begun)


def comes_back_with_gigabytes(victim: Victim) -> Iterator[None]:
    """To its own session, whose key it has, with frames of all sizes and no sense."""
    while True:
        with connect(victim.tcp) as connection:
            greeting, nonce = read_greeting(connection), secrets.token_bytes(32)
            wish = Request(resumable=True)
            connection.sendall(hello(Identity(victim.token), greeting, nonce, wish))
            guest = Guest(connection)
            guest.receive_welcome()
        key = resume_key(Identity(victim.token).key, greeting + nonce)
        with contextlib.suppress(OSError), connect(victim.tcp) as connection:
            ask(connection, resume_body(read_greeting(connection), guest.session, key, 0))
            assert read_frame(connection)[0] == Frame.RESUMED
            for _ in range(64):
                connection.sendall(secrets.token_bytes(16) + bytes(16 << 20))
        yield


def scans_while_it_moves(victim: Victim) -> Iterator[None]:
    """Images that take long to look through, variables without number, and memory full of what could be an
    address of one; the operator moves the session (`bystander.moves`).
    """
    text = [b".version 8.0\n.target sm_80\n.address_size 64\n", b"/**/" * 100_000, b"\n" * 1_000_000]
    text += [b".visible .global .u64 v%d[2];\n" % number for number in range(20_000)]
    while True:
        guest = victim.session()
        address = guest.map(32)
        for page in range(32):
            guest.write(
                address + page * guest.granularity, struct.pack("<Q", address) * (guest.granularity // 8)
            )
        for slot in range(4):
            yield
            image = b"".join([*text, b"// %s\n\0" % secrets.token_hex(8).encode()])
            guest.load(image, handle("library", slot), hashlib.sha256(image).digest())
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            guest.sync()
            yield
        guest.socket.close()


def taken_over(victim: Victim) -> Iterator[None]:
    """A session whose API server runs code of the attacker's (`bystander.takes_over`, rampage.py)."""
    while True:
        guest = victim.session()
        with contextlib.suppress(TimeoutError):
            guest.socket.settimeout(3)
            guest.expect_end()
        guest.socket.close()
        yield


ATTACKS: dict[str, Callable[[Victim], Iterator[None]]] = {
    attack.__name__: attack
    for attack in (
        *(frames, strangers, wrong_tokens, silence, half_requests, bodies_in_parts, crowd_that_waits),
        *(
            calls_of_control,
            calls_that_fail,
            handles,
            deaths_in_mid_copy,
            memory,
            kernels_that_are_long_to_compile,
        ),
        *(kernels_without_end, launches_behind_a_kernel_without_end, image_bombs, printing, resumes, finds),
        *(images_that_are_much_work, objects_without_number, graphs_without_end),
        half_handshakes,
        comes_back_with_gigabytes,
        scans_while_it_moves,
        taken_over,
    )
}
