"""`python -m gpuferry.apiserver`: one API server, started by the monitor."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpuferry.apiserver", description="One API server; the monitor starts it."
    )
    parser.add_argument("--device", required=True, help="ordinal of the device, or of several: 0,1")
    parser.add_argument("--visible", help="what CUDA_VISIBLE_DEVICES calls them, if not by their numbers")
    parser.add_argument(
        "--control-fd", type=int, required=True, help="inherited SOCK_SEQPACKET socket to the monitor"
    )
    parser.add_argument("--confine-fd", type=int, help="a file that says what it gives up in a jail")
    parser.add_argument(
        "--fixed-addresses", action="store_true", help="not to have a randomised address space"
    )
    parser.add_argument("--addresses-fixed", action="store_true", help="it has none, and is in its jail")
    options = parser.parse_args()
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
