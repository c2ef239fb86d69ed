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


def probe(command: str) -> subprocess.CompletedProcess[str]:
    """What a child of `gpuferry COMMAND` wrote before it was executed: how many threads it has."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    program = [sys.executable, "-c", PROBE, command]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_daemons_children_are_alone() -> None:
    """They died now and then: gRPC was told to leave them alone when it had been imported already."""
    done = probe("monitor")
    assert (done.returncode, done.stdout) == (0, "1"), done.stderr


def alone(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the child was. One that gRPC killed before it had written was not."""
    assert done.stdout or "died with <Signals." in done.stderr, done.stderr
    return done.stdout == "1"


def test_otherwise_they_are_not() -> None:
    """Or the test above would prove nothing. gRPC leaves a child alone while it is called into elsewhere; and
    where it does not, one child in ten is killed by what gRPC does in it.
    """
    assert not all(alone(probe("status")) for _ in range(20))
