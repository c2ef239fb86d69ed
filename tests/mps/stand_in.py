#!/usr/bin/env python3
"""Stands in for nvidia-cuda-mps-control, as NVIDIA documents it: `-f` is the daemon, in the foreground;
without options it hands commands from its standard input to the daemon of CUDA_MPS_PIPE_DIRECTORY.

GPUFERRY_TEST_MPS: a folder where it says what it was asked (`asked`), and is told to be mute (`mute`) or not
to come up (`broken`).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

NAME = "nvidia-cuda-mps-control"
PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
TOLD = Path(os.environ.get("GPUFERRY_TEST_MPS", "/nonexistent"))


def serve() -> int:
    if (TOLD / "broken").exists():
        return 1
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return 1  # it would number the devices anew
    if not Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).is_dir() or (PIPES / "control").exists():
        return 1  # another one uses the same pipes
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(str(PIPES / "control"))
    door.listen()
    (PIPES / f"{NAME}.pid").write_text(f"{os.getpid()}\n")
    while True:
        caller, _ = door.accept()
        with caller:
            command = caller.recv(4096).decode().strip()
            with (TOLD / "asked").open("a") as asked:
                asked.write(f"{os.getpid()} {command}\n")
            while (TOLD / "mute").exists():
                time.sleep(0.01)
            if command == "quit":
                for left in ("control", f"{NAME}.pid"):
                    (PIPES / left).unlink()
                return 0
            caller.sendall(b"4711\n" if command == "get_server_list" else b"Unknown command\n")


def ask() -> int:
    call = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for command in sys.stdin:
        try:
            call.connect(str(PIPES / "control"))
        except OSError:
            print("Cannot find MPS control daemon process")
            return 1
        call.sendall(command.encode())
        while answer := call.recv(4096):
            sys.stdout.write(answer.decode())
    return 0


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["-f"] else ask())
