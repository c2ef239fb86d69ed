"""Children of a daemon between fork and exec: nothing of gRPC's runs in them."""

from __future__ import annotations

import os
import subprocess
import sys

PROBE = """
import asyncio, os, sys
from gpuferry.monitor.cli import main

def threads():
    # Before it is executed. gRPC's come at once, if they do.
    for _ in range(200):
        if len(os.listdir("/proc/self/task")) > 1:
            break
        os.sched_yield()
    os.write(1, b"%d" % len(os.listdir("/proc/self/task")))

async def serve():
    import subprocess
    import grpc
    from gpuferry.monitor import daemon  # and with it all that a monitor imports
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    subprocess.run(["true"], preexec_fn=threads, check=True)
    await server.stop(0)

def probe(arguments):
    asyncio.run(serve())
    return 0

main._run = probe
sys.argv = ["gpuferry", sys.argv[1]]
sys.exit(main.main())
"""


def alone(command: str) -> bool:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    program = [sys.executable, "-c", PROBE, command]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout == "1"


def test_a_daemons_children_are_alone() -> None:
    """They died now and then: gRPC was told to leave them alone when it had been imported already."""
    assert alone("monitor")


def test_otherwise_they_are_not() -> None:
    """Or the test above would prove nothing. gRPC leaves a child alone while it is called into elsewhere."""
    assert not all(alone("status") for _ in range(20))
