"""What NVML in the guest makes of an answer that is not what it should be: no device, and no crash."""

from __future__ import annotations

import hashlib
import hmac
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from gpuferry.guest import launch, paths
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame

from tests.guest.fake_server import greeting

TOKEN = b"secret"
DRIVER_NOT_LOADED = 9
NONCE = bytes(32)
UNKNOWN = (-1, -1, -1, -1)
DEVICE = frames.LookDevice(
    b"a device", b"00000000:01:00.0", 0, bytes(16), 1 << 30, 1 << 20, 0, 8, 0, -1, -1, -1, UNKNOWN, UNKNOWN
).pack()
PROCESS = frames.LookProcess(0, 1 << 20, 77).pack()


def told(proof: bytes, devices: int = 1, processes: int = 1, rest: bytes = DEVICE + PROCESS) -> bytes:
    return frames.frame(
        Frame.DEVICES, frames.Devices(proof, 13050, devices, processes, b"580.0.0").pack() + rest
    )


# Each makes the answer of the proof.
ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "right": told,
    "a wrong proof": lambda proof: told(bytes(32)),
    "more devices than are there": lambda proof: told(proof, devices=2),
    "as many as overflow": lambda proof: told(proof, devices=0xFFFFFFFF, processes=0xFFFFFFFF),
    "more processes than are there": lambda proof: told(proof, processes=1000),
    "bytes left over": lambda proof: told(proof, rest=DEVICE + PROCESS + b"more"),
    "cut off": lambda proof: told(proof)[:-40],
    "no body": lambda proof: frames.frame(Frame.DEVICES, b""),
    "something else": lambda proof: frames.frame(Frame.OUTPUT, b"hello"),
    "a refusal": lambda proof: frames.frame(Frame.REFUSED, frames.Refused(3, 800).pack() + b"no"),
    "nothing": lambda proof: b"",
}


def serve(listener: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(frames.frame(Frame.GREETING, greeting(NONCE)))
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little")
        body = connection.recv(size - 4, socket.MSG_WAITALL)[frames.Header.SIZE - 4 :]
        message = frames.PROOF_SERVER + NONCE + frames.Hello.unpack(body).nonce
        connection.sendall(answer(hmac.digest(TOKEN, message, hashlib.sha256)))


CODE = """
import ctypes
nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value)
"""


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer(name: str) -> None:
    with TemporaryDirectory(prefix="gf-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = Path(folder) / "s"
        listener.bind(str(address))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener, ANSWERS[name]))
        server.start()
        settings = {"GPUFERRY_MONITOR": f"unix:{address}", "GPUFERRY_TOKEN": TOKEN.decode()}
        environment = launch.inject(launch.clean_environment() | settings, paths.guest_library())
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
        )
        server.join(60)
    assert done.stdout.split() == (["0", "0", "1"] if name == "right" else [str(DRIVER_NOT_LOADED), "1", "0"])
