"""Sound inputs of every target, made from the contract: what the fuzzers change."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from gpuferry.specs._generated import frames, operations
from gpuferry.specs._generated.frames import Frame

from tests.fuzz import images
from tests.helpers import cubin

PROOF = bytes(range(32))
HANDSHAKE = (b"\0", b"\1")  # a first connection, and one in place of another
NEW, AGAIN = HANDSHAKE


def _greeting(build: int = operations.BUILD) -> bytes:
    greeting = frames.Greeting(frames.MAGIC, frames.PROTOCOL_VERSION, build, PROOF)
    return frames.frame(Frame.GREETING, greeting.pack())


def _welcome(agreement: bytes = b"", hashes: int = 2) -> bytes:
    welcome = frames.Welcome(PROOF, 7, 1 << 40, 1 << 36, 1 << 30, 2 << 20, 13050, 1, 3, hashes, 1000)
    count = struct.calcsize("256i") // 4
    device = frames.Device(b"a device", bytes(16), 1 << 33, 0, -5, count, (1,) * count, (0,) * 8)
    return frames.frame(Frame.WELCOME, welcome.pack() + device.pack() + PROOF * hashes + agreement)


def _refused(reason: int, text: bytes) -> bytes:
    return frames.frame(Frame.REFUSED, frames.Refused(reason, 46).pack() + text)


def _redirect(ticket: bytes, address: bytes) -> bytes:
    body = frames.Redirect(PROOF, PROOF, len(ticket), len(address)).pack()
    return frames.frame(Frame.REDIRECT, body + ticket + address)


def _moved(address: bytes) -> bytes:
    return frames.frame(Frame.MOVED, frames.Moved(PROOF, PROOF, PROOF, 9, len(address)).pack() + address)


def handshake() -> Iterable[bytes]:
    """What a monitor or registry says to a guest before there is a session."""
    bits = bytes(len(operations.SPOKEN) // 8 + 1)
    agreement = frames.Agreement(900, len(bits), 5).pack() + bits + b"0.9.9"
    queued = frames.frame(Frame.QUEUED, frames.Queued(3, 9).pack())
    yield NEW + _greeting() + _welcome()
    yield NEW + _greeting(1) + queued + queued + _welcome(agreement)
    yield NEW + _greeting() + _refused(1, b"no") + _greeting() + _refused(3, b"another build")
    yield NEW + _greeting() + _redirect(b"t" * 136, b"gpu-b:7700") + _greeting() + _welcome()
    yield NEW + _greeting() + _redirect(b"ticket", b"b:1")
    yield NEW + _refused(2, b"full") + _greeting() + queued
    resumed = frames.frame(Frame.RESUMED, frames.Resumed(PROOF, 12345).pack())
    yield AGAIN + _greeting() + resumed
    yield AGAIN + _greeting() + _moved(b"gpu-b:7700") + _greeting() + resumed
    yield AGAIN + _greeting() + _refused(4, b"shutting down") + _greeting() + _refused(5, b"gone")


def replies() -> Iterable[bytes]:
    """What an API server says to a guest in a session: answers to the target's four calls, and the rest."""

    def reply(op: int, request: int, body: bytes, status: int = 0, latched: int = 0) -> bytes:
        prefix = frames.ReplyPrefix(latched, 7, 0).pack()
        size = frames.Header.SIZE + len(prefix) + len(body)
        return frames.Header(size, op, frames.FrameFlag.REPLY, request, status).pack() + prefix + body

    for resumable in (b"\0", b"\1"):
        yield resumable + reply(1, 1, b"") + reply(2, 2, bytes(24)) + reply(3, 3, b"r" * 48)
        yield resumable + reply(4, 4, bytes(8) + b"payload" * 30, latched=700) + reply(2, 2, b"", status=1)
        yield resumable + frames.frame(Frame.OUTPUT, b"printed\n" * 9) + reply(1, 1, b"")
        yield resumable + frames.frame(Frame.ACKNOWLEDGE, frames.Acknowledge(99).pack()) + reply(1, 1, b"")
        yield resumable + reply(1, 1, b"") + _moved(b"gpu-b:7700") + reply(2, 2, bytes(24))
        yield resumable + _moved(b"gpu-c:7700")
        yield resumable + _moved(b"gpu-c:7700") + frames.frame(Frame.OUTPUT, b"printed\n" * 200)
        yield resumable + frames.frame(Frame.MOVED, b"") + _refused(5, b"revoked: enough")


def kernel_table() -> Iterable[bytes]:
    """Tables of none to three kernels."""
    kernels = [(b"k", 0), (b"longer_name", 2), (b"_Z4thirdPfi", 3)]
    table = b""
    yield struct.pack("<H", 0)
    for count, (name, params) in enumerate(kernels, 1):
        table += frames.Kernel(len(name), params, (1,) * 18).pack()
        table += b"".join(frames.KernelParam(8 * i, 8).pack() for i in range(params))
        table += name.ljust(-(-len(name) // 4) * 4, b"\0")
        yield struct.pack("<H", count) + table


def codec() -> Iterable[bytes]:
    """Launch attributes, JIT options, domain maps: kind, count, then what a request has."""
    attribute = struct.pack("<II", 4, 0) + bytes(64)
    for kind in range(8):
        for count in (0, 1, 3):
            for presence in (b"", b"\1"):
                yield struct.pack("<BH", kind, count) + presence + attribute * count
    yield struct.pack("<BH", 2, 0) + struct.pack("<I", 2) + struct.pack("<IIQQ", 0, 9, 64, 4)


def link_set() -> Iterable[bytes]:
    """One and two containers."""
    for count in (1, 2):
        container = images.container([images.entry(b"// text\n.version 8.0\n\0")])
        container += bytes(-len(container) % 8)
        begin = frames.LinkSet.SIZE + 8 * count
        offsets = struct.pack(f"<{count}Q", *(begin + i * len(container) for i in range(count)))
        yield frames.LinkSet(frames.LINK_SET_MAGIC, count).pack() + offsets + container * count


def sniff() -> Iterable[bytes]:
    """Every kind of image."""
    yield cubin.sample()
    yield from images.sound()


TARGETS: dict[str, Callable[[], Iterable[bytes]]] = {
    each.__name__: each for each in (codec, handshake, kernel_table, link_set, replies, sniff)
}


def write(target: str, folder: Path) -> None:
    """The seeds of a target, each in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(TARGETS[target]()):
        (folder / f"seed-{number:03}").write_bytes(data)
