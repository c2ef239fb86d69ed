"""`python -m gpuferry.apiserver`: one API server, started by the monitor."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8


class Options(NamedTuple):
    """What the monitor says: `--name value` or `--name=value`, `--name` alone for what is so or not."""

    device: str = ""  # the device's ordinal, or those of several: 0,1
    visible: str | None = None  # what CUDA_VISIBLE_DEVICES calls them, if not by their numbers
    control_fd: int = -1  # inherited SOCK_SEQPACKET socket to the monitor
    confine_fd: int | None = None  # a file that says what it gives up in a jail
    fixed_addresses: bool = False  # not to have a randomised address space
    addresses_fixed: bool = False  # it has none, and is in its jail

    @classmethod
    def read(cls, words: Sequence[str]) -> Options:
        """The options in these words. Raises ValueError. It does without argparse, whose import takes a
        seventh of what an API server needs to begin, and it begins twice.
        """
        found: dict[str, Any] = {}
        rest = iter(words)
        for word in rest:
            option, given, value = word.partition("=")
            name = option.removeprefix("--").replace("-", "_")
            if name not in cls._fields:
                raise ValueError(f"{option} is no option of an API server; the monitor starts it")
            if cls._field_defaults[name] is False:
                found[name] = True
                continue
            text = value if given else next(rest, "")
            found[name] = int(text) if name.endswith("_fd") else text
        return cls(**found)


def main() -> int:
    options = Options.read(sys.argv[1:])
    confinement = None
    if options.confine_fd is not None:
        from .confinement import Confinement

        confinement = Confinement.read(options.confine_fd)
        if not options.addresses_fixed:
            confinement.enter(options.control_fd, options.confine_fd)
    # In the jail: a process that could gain capabilities by beginning again would get a random one.
    if options.fixed_addresses or options.addresses_fixed:
        from . import layout

        layout.leave() if options.addresses_fixed else layout.fix()
    if options.confine_fd is not None:
        os.close(options.confine_fd)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.mallopt(M_ARENA_MAX, 2)  # an arena per thread would cost more memory than it saves time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the monitor's business

    os.environ.pop("CUDA_LAUNCH_BLOCKING", None)  # the guest waits: the dispatcher must not
    from . import driver

    driver.stand_in()
    from .server import Server

    devices = [int(device) for device in options.device.split(",")]
    if options.visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = options.visible  # the driver sees them only, counted from 0
    ordinals = range(len(devices)) if options.visible else devices
    return Server(devices, options.control_fd, confinement, ordinals).run()


if __name__ == "__main__":
    try:
        status = main()
    except Exception:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)  # whatever still runs on the device, or waits for it, ends with the process
