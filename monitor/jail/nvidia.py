"""What NVIDIA's driver needs in a jail: after its open kernel modules, and not tried on a GPU yet."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

# Beyond those of filter.py.
CALLS = ("sched_setscheduler", "set_mempolicy", "mbind", "migrate_pages", "move_pages")
# ioctl: (mask, value). Those of the resource manager are of type 'F', of modeset 'd', of UVM of none.
REQUESTS = ((0xFF00, 0x4600), (0xFF00, 0x6400), (0xFFFFFF00, 0), (0xFFFFFFF0, 0x30000000))
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


def files() -> Iterator[str]:
    """The files and folders of this machine that its libraries read."""
    yield from (path for path in READS if os.path.exists(path))
