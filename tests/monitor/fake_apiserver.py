"""An API server without a device: speaks node.proto, and does what its guest's function name says.

    (anything)    serves until the guest closes, then is clean
    unclean       serves until the guest closes, then is not clean
    crash         dies when it is granted, before it started the session (only on its first grant)
    fatal         the same on each of its grants
    wedged        takes the grant and never starts the session
    lingers       is clean, and never ready again
    hoards        makes the book of its lease larger than a book is
    meddles       says that the session before its own is over
    tidies        when its guest has closed, is done after it was asked for its statistics three times
    keeps         when its guest has closed, keeps the session

GPUFERRY_FAKE=fail|mute|exit: what it does at its start instead of getting ready
(GPUFERRY_FAKE_1: only on device 1; GPUFERRY_FAKE_SEVERAL: only one of several devices).
GPUFERRY_FAKE_ONCE=PATH: all of that only once this file is there.
GPUFERRY_FAKE_TERMS=1: its WELCOME is like no other API server's.
GPUFERRY_FAKE_OLDER=SECONDS: by which its session is older, says it to another monitor, than it is.
GPUFERRY_FAKE_CLAIMS=NUMBER: says to another monitor that it has this session.
GPUFERRY_FAKE_LEAVING=SECONDS: which it takes to end when it is asked to.
GPUFERRY_FAKE_CHILD=1: has a child process, as one with a compiler has.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from gpuferry.native.descriptors import receive
from gpuferry.specs._generated import node_pb2, wire
from gpuferry.specs._generated.frames import Frame, Welcome, frame

MEMORY = 1 << 30
LEAVING = float(os.environ.get("GPUFERRY_FAKE_LEAVING", "0"))
OLDER = float(os.environ.get("GPUFERRY_FAKE_OLDER", "0"))


class FakeServer:
    def __init__(self, devices: list[int], control: socket.socket) -> None:
        self.devices, self.device = devices, devices[0]
        self.control = control
        self.session = 0
        self.quota = 0
        self.sending = threading.Lock()
        self.grant: node_pb2.Grant | None = None
        self.granted = 0.0  # when
        self.guest: socket.socket | None = None
        self.door: socket.socket | None = None  # where the next monitor comes
        self.orders: dict[str, bytes] = {}  # as they came
        self.asked = threading.Semaphore(0)  # for its statistics

    def tell(self, **message: Any) -> None:
        # What happens while there is no monitor is lost: one was killed before its question was read, say.
        with self.sending, contextlib.suppress(OSError):
            self.control.send(node_pb2.FromServer(**message).SerializeToString())

    def ready(self) -> None:
        self.session, self.grant = 0, None
        self.tell(ready=self.description())

    def description(self) -> node_pb2.Ready:
        return node_pb2.Ready(
            pid=os.getpid(),
            seals=True,
            device=self.device,
            devices=self.devices if len(self.devices) > 1 else (),
            device_uuid=bytes([self.device]) * 16,
            device_name=f"Fake {self.device}",
            device_memory=MEMORY,
            window_base=1 << 40,
            window_size=1 << 36,
            driver_version=13050,
            simulated=True,
            welcome=welcome(),
        )

    def find_another_monitor(self) -> None:
        """As a real one does, but for ever, and what happens meanwhile is lost."""
        if self.door is None:
            os._exit(0)
        returned = node_pb2.Returned(
            spec_hash=wire.SPEC_HASH, ready=self.description(), orders=self.orders.values()
        )
        if os.environ.get("GPUFERRY_FAKE_SPEC"):
            returned.spec_hash = b"of old"
        if self.grant:
            returned.grant.CopyFrom(self.grant)
            returned.session_seconds = time.monotonic() - self.granted + OLDER
        if claimed := os.environ.get("GPUFERRY_FAKE_CLAIMS"):
            returned.grant.session = int(claimed)
        self.add_to(returned)
        with self.sending:
            while True:
                self.control.close()
                self.control = self.come_back(self.door, returned)
                packet = node_pb2.FromServer(returned=returned).SerializeToString()
                beside = [self.guest.fileno()] if self.guest and self.guest.fileno() >= 0 else []
                with contextlib.suppress(OSError):
                    socket.send_fds(self.control, [packet], beside)
                    return

    def come_back(self, door: socket.socket, returned: node_pb2.Returned) -> socket.socket:
        """A connection to another monitor."""
        return door.accept()[0]

    def add_to(self, returned: node_pb2.Returned) -> None:
        """What else the next monitor should know."""

    def stats(self) -> node_pb2.Stats:
        rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        return node_pb2.Stats(
            session=self.session, memory_quota=self.quota, calls_async=7, calls_sync=3, rss=rss
        )

    def serve(self, grant: node_pb2.Grant, guest: socket.socket) -> None:
        self.session, self.quota, self.grant = grant.session, grant.memory_quota, grant
        self.granted = time.monotonic()
        self.guest = guest
        if grant.function == "wedged":
            return
        self.tell(started=node_pb2.SessionStarted(session=grant.session))
        reason = "closed"
        try:
            guest.sendall(os.getpid().to_bytes(4, "little"))
            if grant.function == "meddles":
                self.tell(ended=node_pb2.SessionEnded(session=grant.session - 1, reason="?", clean=True))
            while data := guest.recv(65536):
                guest.sendall(data)
        except OSError:
            reason = "connection lost"
        for _ in range({"tidies": 3, "keeps": 1 << 30}.get(grant.function, 0)):
            self.asked.acquire()
        guest.close()
        clean = grant.function != "unclean"
        self.tell(
            ended=node_pb2.SessionEnded(session=grant.session, reason=reason, clean=clean, stats=self.stats())
        )
        if clean and grant.function != "lingers":
            self.ready()

    def run(self) -> None:
        while True:
            packet, descriptors = b"", list[int]()
            with contextlib.suppress(ConnectionResetError):
                packet, descriptors = receive(self.control, 65536, 4)
            if not packet:
                self.find_another_monitor()
                continue
            message = node_pb2.ToServer.FromString(packet)
            if (kind := message.WhichOneof("message")) in ("grant", "keep", "migrate"):
                self.orders[kind] = packet
            if message.WhichOneof("message") == "stats":
                self.asked.release()
                self.tell(stats=self.stats())
            elif message.WhichOneof("message") == "home":
                self.door = socket.socket(fileno=descriptors[0]) if descriptors else self.door
            elif message.WhichOneof("message") == "shutdown":
                time.sleep(LEAVING)
                os._exit(0)
            elif message.WhichOneof("message") == "share":
                if self.grant and self.grant.function == "hoards":
                    os.pwrite(descriptors[0], bytes(1), 1 << 30)
                os.close(descriptors[0])
                self.tell(shared=node_pb2.Shared(session=message.share.session))
            elif message.WhichOneof("message") == "revoke" and self.guest:
                self.guest.shutdown(socket.SHUT_RDWR)
            elif message.WhichOneof("message") == "grant":
                guest = socket.socket(fileno=descriptors[0])
                assert guest.getblocking()
                function = message.grant.function
                if function == "fatal" or (function == "crash" and claim_crash()):
                    os._exit(3)
                threading.Thread(target=self.serve, args=(message.grant, guest), daemon=True).start()
            else:
                self.obey(message, descriptors)

    def obey(self, message: node_pb2.ToServer, descriptors: list[int]) -> None:
        """Whatever else there is."""


def welcome() -> bytes:
    """What the guest is told of the device."""
    base = os.getpid() if os.environ.get("GPUFERRY_FAKE_TERMS") else 0
    return frame(Frame.WELCOME, Welcome(b"", 0, base, 0, 0, 0, 0, 0, 0, 0, 0).pack())


def claim_crash() -> bool:
    """True for the first API server that asks."""
    try:
        Path(os.environ["GPUFERRY_RUNTIME_DIR"], "crashed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--device", required=True)
    options.add_argument("--control-fd", type=int, required=True)
    chosen = options.parse_args()
    control = socket.socket(fileno=chosen.control_fd)
    control.set_inheritable(False)
    assert "GPUFERRY_TOKEN" not in os.environ
    devices = [int(device) for device in chosen.device.split(",")]
    server = FakeServer(devices, control)
    which = "SEVERAL" if len(devices) > 1 else devices[0]
    behaviour = os.environ.get(f"GPUFERRY_FAKE_{which}", os.environ.get("GPUFERRY_FAKE"))
    if not Path(os.environ.get("GPUFERRY_FAKE_ONCE", "/")).exists():
        behaviour = None
    if os.environ.get("GPUFERRY_FAKE_CHILD"):
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    if behaviour == "exit":
        os._exit(9)  # at once: its exit status is known as soon as its socket is closed
    if behaviour == "fail":
        server.tell(failed=node_pb2.Failed(reason="no driver to be found"))
    elif behaviour != "mute":
        server.ready()
    server.run()


if __name__ == "__main__":
    main()
