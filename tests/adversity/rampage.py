# mypy: ignore-errors
"""What an attacker does who runs code in an API server and wants others to suffer: it takes processors,
memory and the log, then says nonsense to the monitor. tests/jail/takeover.c runs it."""

import os
import socket
import time


def spin():
    while True:
        pass


def hoard():
    held = []
    while True:
        try:
            held.append(bytearray(16 << 20))
        except MemoryError:
            time.sleep(0.01)


def shout():
    while True:
        os.write(2, b"\x1b[31mrampage\n" * 1000)


def babble(descriptor):
    with socket.socket(fileno=os.dup(descriptor)) as end:
        while True:
            end.send(os.urandom(200))


for deed in (spin, spin, spin, spin, hoard, shout):
    if os.fork() == 0:
        try:
            deed()
        finally:
            os._exit(0)
time.sleep(1.5)
for name in os.listdir("/proc/self/fd"):
    try:
        babble(int(name))
    except OSError:
        continue
