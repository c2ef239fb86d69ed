"""`python -m tests.adversity.bystander [ATTACK …]`: how late a tenant's program is beside attacks of another.

The program runs alone first, then beside each attack, which goes on all the time. What counts is the latest
answer against the median of those alone. Attackers have processes of their own that yield to everybody: they
would be on other machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
from gpuferry.specs._generated import control_pb2, control_pb2_grpc
from rich.console import Console
from rich.table import Table

from tests.adversity.attacks import ATTACKS, Victim
from tests.apiserver.guest import Ended
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import native_environment, run
from tests.helpers.warm import CLI
from tests.resume.running import built

SECONDS = 8.0  # beside each attack
ALONE = 7  # runs
LATE_MOST = 1.0  # the promise of issue 10, in seconds
POOL = 4
JAIL_MEMORY = 1 << 30  # for what takes all that it can have


def attack(name: str, victim: Victim) -> None:
    """Until killed. One that is refused, or whose session ends, comes again."""
    os.nice(19)
    while True:
        with contextlib.suppress(OSError, EOFError, Ended):
            for _ in ATTACKS[name](victim):
                os.write(1, b".")  # a deed


@contextlib.contextmanager
def beside(name: str, victim: Victim) -> Iterator[subprocess.Popen[bytes]]:
    """The attack goes on within this context, and has begun."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.adversity.bystander", "--attack", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(asdict(victim)).encode())
        process.stdin.close()
        try:
            assert process.stdout.read(1) == b".", f"{name}: no deed; the attack itself failed"
            os.set_blocking(process.stdout.fileno(), False)
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def moves(stub: Any, attackers: Sequence[Any], metadata: Any) -> int:
    """The operator moves each of the attacker's sessions as long as it lives. Returns how often."""
    moved = 0
    for session in attackers:
        request = control_pb2.MigrateRequest(session=session.id, any=True)
        with contextlib.suppress(grpc.RpcError):
            while True:
                *_, last = stub.Migrate(request, metadata=metadata, timeout=60)
                moved += last.state == control_pb2.MIGRATION_STATE_DONE
    return moved


def takes_over(stub: Any, attackers: Sequence[Any], metadata: Any) -> int:
    """The API servers of the attacker's sessions run its code. Returns how many."""
    for session in attackers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(session.server_pid, signal.SIGUSR2)
    return len(attackers)


# What attackers cannot do by themselves, or need a hole for, it is done to each of their sessions.
Done = Callable[[Any, Sequence[Any], Any], int]
DONE: dict[str, Done] = {"scans_while_it_moves": moves, "taken_over": takes_over}


@contextlib.contextmanager
def done_to_sessions(server: Monitor, done: Done) -> Iterator[None]:
    """Beside what runs in this context."""
    metadata = (("authorization", f"Bearer {server.token}"),)
    over, count = threading.Event(), 0

    def go_on() -> None:
        nonlocal count
        known: set[int] = set()
        with grpc.insecure_channel(server.control) as channel:
            stub = control_pb2_grpc.MonitorStub(channel)
            while not over.wait(0.1):
                status = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=60)
                theirs = [one for one in status.sessions if one.tenant == "attacker" and one.server_pid]
                new = [one for one in theirs if one.id not in known]
                known |= {one.id for one in new}
                count += done(stub, new, metadata)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert count, "nothing was done to any session"


def takeover(folder: Path) -> dict[str, str]:
    """The environment of a monitor whose API servers can be taken over."""
    jail = Path(__file__).parents[1] / "jail"
    library = folder / "libtakeover.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, jail / "takeover.c"], check=True)
    shutil.copy(Path(__file__).with_name("rampage.py"), folder / "payload.py")
    folder.chmod(0o755)
    return {"LD_PRELOAD": str(library)}


def token(state: str, tenant: str) -> str:
    """A new token of this tenant."""
    environment = os.environ | {"GPUFERRY_STATE_DIR": state}
    made = subprocess.run([*CLI, "token", "create", tenant], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def published(server: Monitor, name: str) -> str:
    lines = (server.folder / "run" / "endpoint").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)[name]


def timed(server: Monitor, mine: str, right: str) -> float:
    """Seconds of one run of the bystander's program, whose answer must be right."""
    began = time.perf_counter()
    outcome = server.run([built("vector_add_driver")], extra={"GPUFERRY_TOKEN": mine})
    assert (outcome.status, outcome.stdout) == (0, right), outcome.stderr
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Show how late the bystander is. Returns 0 if nowhere later than was promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversity.bystander")
    parser.add_argument("attacks", nargs="*", help=f"default: all of {', '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="beside each attack")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.attack:
        attack(chosen.attack, Victim(**json.load(sys.stdin)))
    table = Table(box=None)
    table.add_column("beside")
    for column in ("runs", "median s", "latest s", "late by s", "deeds", "holds"):
        table.add_column(column, justify="right")
    right = run([built("vector_add_driver")], native_environment()).stdout
    holds = True
    for name in chosen.attacks or ATTACKS:
        alone, times, deeds = measured(name, chosen.seconds, right)
        late = max(times) - alone
        holds &= late <= LATE_MOST
        table.add_row(
            name.replace("_", " "),
            str(len(times)),
            f"{statistics.median(times):.2f} ({alone:.2f} alone)",
            f"{max(times):.2f}",
            f"{late:.2f}",
            str(deeds),
            "yes" if late <= LATE_MOST else "no",
        )
        Console(stderr=True).print(f"{name}: {late:.2f} s late at most, {len(times)} runs")
    Console(width=110).print(table)
    return 0 if holds else 1


def measured(name: str, seconds: float, right: str) -> tuple[float, list[float], int]:
    """Seconds of the program alone and of each run beside the attack, and what that did meanwhile. What is
    alone is measured anew for each, because the machine is shared.
    """
    done = DONE.get(name)
    with contextlib.ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mine, theirs = token(str(state), "bystander"), token(str(state), "attacker")
        devices = 2 if done is moves else 1
        options = ["--pool", str(POOL // devices), "--http", "127.0.0.1:0", "--log-level", "warning"]
        options += ["--jail-memory", str(JAIL_MEMORY)] if done is takes_over else []
        environment = {"GPUFERRY_STATE_DIR": str(state), "GPUFERRY_SIM_DEVICES": str(devices)}
        environment |= takeover(state) if done is takes_over else {}
        server = stack.enter_context(monitor(*options, environment=environment))
        victim = Victim(server.tcp, published(server, "GPUFERRY_HTTP"), server.control, theirs)
        timed(server, mine, right)
        alone = statistics.median(timed(server, mine, right) for _ in range(ALONE))
        times: list[float] = []
        deeds = 1
        if done:
            stack.enter_context(done_to_sessions(server, done))
        attacking = stack.enter_context(beside(name, victim))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            times.append(timed(server, mine, right))
            assert attacking.stdout
            deeds += len(attacking.stdout.read() or b"")  # a full pipe would hold the attacker up
        assert attacking.poll() is None
    return alone, times, deeds


if __name__ == "__main__":
    sys.exit(main())
