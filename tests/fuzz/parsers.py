"""Parsers in Python before strangers' bytes: each gives an answer, or the error that it is known for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuferry.migration import variables
from gpuferry.migration.chunks import Sealer
from gpuferry.migration.errors import MigrationError, SnapshotError
from gpuferry.migration.file import CONTENTS, DESCRIPTION, END, FRAME, PLACE, SIZE, TOTAL, Reader
from gpuferry.migration.frames import ANSWER, HEADER
from gpuferry.migration.head import read_head
from gpuferry.migration.place import ExistingFile, NewFile
from gpuferry.migration.plain import PlainReader
from gpuferry.migration.seal import seal, unseal
from gpuferry.monitor.door import handshake
from gpuferry.monitor.door.handshake import Proven, Refusal
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor_options import MonitorOptions
from gpuferry.monitor.settings.options import options_of
from gpuferry.monitor.settings.sources import load
from gpuferry.native.simdevice.compiler import fatbin, machine_code
from gpuferry.native.simdevice.compiler import images as simulated
from gpuferry.native.simdevice.compiler import index as simulated_index
from gpuferry.native.simdevice.compiler.errors import ImageError
from gpuferry.specs._generated import frames, node_pb2, operations, snapshot_pb2, wire
from gpuferry.specs._generated.frames import Extension, Frame, Resume

from tests.fuzz import images
from tests.fuzz.changing import Changing
from tests.helpers import cubin
from tests.migration.plain_file import of_first_release

SECRET = b"s" * 64
NONCE = bytes(32)


@dataclass(frozen=True)
class Target:
    """A parser, sound inputs for it, and how it says that one is not."""

    run: Callable[[bytes], object]
    sound: Callable[[], Iterable[bytes]]
    errors: tuple[type[Exception], ...]
    words: Sequence[bytes] = ()


# -- HELLO and RESUME, as a monitor reads them; its proof is taken for right


def _handshake(data: bytes) -> None:
    size, resumes = handshake.first_frame(data[: frames.Header.SIZE].ljust(frames.Header.SIZE, b"\0"))
    body = data[frames.Header.SIZE : size]
    if resumes:
        handshake.read_resume(body, NONCE).answer(NONCE)
        return
    claim = handshake.read_hello(body, NONCE)
    for tenant, invited in ((None, False), ("ann", False), ("ann", True)):
        hello = handshake.accept_hello(claim, Proven(tenant, NONCE, invited))
        assert all(text.isprintable() for text in (hello.tenant, hello.function, hello.program))
        assert hello.max_wait >= 0


def _hellos() -> Iterable[bytes]:
    def hello(spec: bytes, rest: bytes = b"", flags: int = 0) -> bytes:
        fields = frames.Hello(1, flags, spec, NONCE, 7, 1 << 30, 1, b"ann", b"f", b"program", NONCE)
        return frames.frame(Frame.HELLO, fields.pack() + rest)

    spoken = b"".join(frames.Spoken(*each).pack() for each in sorted(operations.SPOKEN.items()))
    extension = handshake.extension
    yield hello(wire.SPEC_HASH)
    yield hello(wire.SPEC_HASH, extension(Extension.LABELS, b"zone=a,gpu=h100"), 1)
    times = (Extension.MAX_WAIT, Extension.WALL_LIMIT, Extension.IDLE_LIMIT)
    yield hello(wire.SPEC_HASH, b"".join(extension(kind, b"\x10\x27\0\0") for kind in times))
    yield hello(wire.SPEC_HASH, extension(Extension.RESTORE, frames.Restore(7, 5000).pack()))
    yield hello(wire.SPEC_HASH, extension(Extension.TICKET, bytes(frames.Ticket.SIZE)))
    yield hello(operations.RELEASES[0].spec_hash)
    for kind in Extension:
        yield hello(NONCE, extension(kind, spoken[:600]))
    yield frames.frame(Frame.RESUME, Resume(1, 0, NONCE, 7, 12345, NONCE).pack())


# -- snapshot files, whole and behind the encryption


def _with_file(data: bytes, read: Callable[[ExistingFile], object]) -> None:
    descriptor = os.memfd_create("snapshot")
    os.write(descriptor, data)
    with ExistingFile(descriptor, "a file") as file:
        read(file)


HEAD, KEY = seal(SECRET, snapshot_pb2.About(session=7, tenant="ann", program="p"))


def _sealed(records: bytes) -> bytes:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        file = NewFile(Path(folder, "file"))
        sealer = Sealer(file, HEAD, KEY)
        sealer.write(records)
        sealer.finish()
        file.publish()
        file.close()
        return Path(folder, "file").read_bytes()


def _snapshot(data: bytes) -> None:
    def read(file: ExistingFile) -> None:
        about, key = unseal(SECRET, read_head(file), file.name)
        Reader(file, key).check()
        assert about.session == 7

    _with_file(data, read)
    assert data in GENUINE, "a file was read that nobody wrote"


def _records(data: bytes) -> None:
    _with_file(_sealed(data), lambda file: Reader(file, KEY).check())


def _sound_records() -> Iterable[bytes]:
    snapshot = snapshot_pb2.Snapshot(grant=node_pb2.Grant(session=7), spec_hash=wire.SPEC_HASH)
    text = snapshot.SerializeToString()
    begin = bytes([DESCRIPTION]) + SIZE.pack(len(text)) + text
    frame = bytes([FRAME]) + ANSWER.pack(9) + HEADER.pack(HEADER.size + 4, 300, 0, 1, 1) + b"body"
    end = bytes([END]) + TOTAL.pack(1 << 21)
    yield begin + end
    yield begin + frame * 3 + end
    yield begin + frame + bytes([CONTENTS]) + PLACE.pack(1 << 40, 0) + end


GENUINE = [_sealed(records) for records in _sound_records()]


def _plain_files() -> Iterable[bytes]:
    yield of_first_release([], snapshot_pb2.Snapshot(grant=node_pb2.Grant(session=7)))


# -- images: the simulated device's compiler, and what migration reads of variables


def _simulated(data: bytes) -> None:
    simulated.sources(data, 80)


def _machine_code(data: bytes) -> None:
    """To the index, as where code is skipped."""
    room = fatbin.Room(machine_code.MOST)
    code = simulated.machine_code(data, 80, room)
    if code is not None:
        simulated_index.build(machine_code.read(code, 80, room), b"")


def _cubins() -> Iterable[bytes]:
    for later in (False, True):
        yield cubin.sample(later=later)
        yield images.container(
            [images.entry(cubin.sample(later=later), kind=images.ELF), images.entry(images.TEXT)]
        )


def _variables(data: bytes) -> None:
    variables.find(data)


# -- settings: a file, the environment, flags


def _settings(data: bytes) -> None:
    """The first byte says where the text stands."""
    text = data[1:].decode(errors="surrogateescape")
    known = list(options_of(MonitorOptions, "monitor"))
    chosen = known[data[0] % len(known)] if data else known[0]
    if data[:1] < b"\x55":
        load(MonitorOptions, "monitor", {chosen.name: text}, os.devnull)
        return
    SETTINGS_FILE.write_bytes(data[1:])
    load(MonitorOptions, "monitor", {}, str(SETTINGS_FILE))


SETTINGS_FILE = Path(tempfile.gettempdir(), f"gpuferry-fuzz-{os.getpid()}.toml")


def _sound_settings() -> Iterable[bytes]:
    for value in (
        "127.0.0.1:7700",
        "[::1]:7700",
        "unix:/tmp/x",
        "none",
        "3",
        "2GiB",
        "1.5",
        "fcfs",
        "a,b:1",
        "~/x",
    ):
        for place in range(0, 0x50, 7):
            yield bytes([place]) + value.encode()
    yield b'\xffpool = 3\nlisten = "127.0.0.1:0"\nmemory = "2GiB"\nmax_wait = 1.5\n'
    yield b'\xffhttp = "none"\nlog_level = "info"\nunknown = [1, {a = "b"}]\n'


TARGETS = {
    "hello": Target(_handshake, _hellos, (Refusal,), [bytes([kind, 0]) for kind in Extension]),
    "snapshot": Target(_snapshot, lambda: GENUINE, (SnapshotError,)),
    "records": Target(_records, _sound_records, (SnapshotError,), [bytes([kind]) for kind in range(5)]),
    "plain": Target(
        lambda data: _with_file(data, lambda f: PlainReader(f).check()), _plain_files, (SnapshotError,)
    ),
    "simulated": Target(_simulated, images.sound, (ImageError,), [b".version 8.0", b".target", b"\n", b"/*"]),
    "machine_code": Target(
        _machine_code, _cubins, (ImageError,), [b".nv.", b".text.", b"\4\x17\x0c\0", b"\xff\xff"]
    ),
    "variables": Target(_variables, images.sound, (MigrationError,), [b".global", b";", b"{", b"\n", b"/*"]),
    "settings": Target(_settings, _sound_settings, (ConfigError,), [b"=", b"[", b'"', b"GiB", b"\n"]),
}


def run(name: str, inputs: int, seed: int = 1, kept: Iterable[bytes] = ()) -> int:
    """Try so many inputs, those that were kept first. Returns how many were sound all the same. Raises what
    the parser should not, with the input in a note.
    """
    target, sound = TARGETS[name], 0
    changing = Changing(list(target.sound()), seed, target.words)
    first = [*target.sound(), *kept]
    for number in range(inputs):
        data = first[number] if number < len(first) else changing.next()
        try:
            target.run(data)
            sound += 1
        except target.errors:
            pass
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}, input {number}: {data!r}") from error
    return sound
