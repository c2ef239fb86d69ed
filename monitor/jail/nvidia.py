"""What NVIDIA's driver needs in a jail: after its open kernel modules; enough for 580.159 on an H200."""

from __future__ import annotations

import glob
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping

# Beyond those of filter.py.
CALLS = ("sched_setscheduler", "set_mempolicy", "mbind", "migrate_pages", "move_pages")
# ioctl: (mask, value). Those of the resource manager are of type 'F', of modeset 'd', of UVM of none.
REQUESTS = ((0xFF00, 0x4600), (0xFF00, 0x6400), (0xFFFFFF00, 0), (0xFFFFFFF0, 0x30000000))
# Of sockets, which it can only make in pairs. Never SO_LINGER: whoever closes such a socket last waits, and
# that may be the monitor, to which it was sent.
SOCKET_OPTIONS = (
    *(socket.SO_SNDBUF, socket.SO_RCVBUF, socket.SO_SNDTIMEO, socket.SO_RCVTIMEO),
    socket.SO_PASSCRED,
)
NODES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-caps/*",
)
# What its libraries read. They lie where all libraries do, and /proc/driver is in every /proc.
READS = (
    "/sys/devices",
    "/sys/bus/pci",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
    "/sys/class/drm",
    "/usr/share/nvidia",
    "/etc/nvidia",
)
PERSISTENCE = "/run/nvidia-persistenced/socket"  # not shown: what it would do, the kernel does at first use


def nodes() -> Iterator[str]:
    """The device files of this machine."""
    for pattern in NODES:
        yield from sorted(glob.glob(pattern))


# In a process of its own, as the driver may be another one there than here, and stays once it was loaded.
_WHERE = """
import ctypes, os
for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    with open("/proc/self/maps") as maps:
        print(os.path.dirname(next(line.split()[-1] for line in maps if name[:-1] in line)))
"""


def files(environment: Mapping[str, str]) -> Iterator[str]:
    """What of this machine its libraries read, and where they lie themselves for a program of this
    environment: not where all libraries do, say, but in /usr/local/nvidia.
    """
    yield from (path for path in READS if os.path.exists(path))
    where = [sys.executable, "-c", _WHERE]
    found = subprocess.run(where, env=environment, capture_output=True, text=True, timeout=60, check=True)
    yield from dict.fromkeys(found.stdout.splitlines())
