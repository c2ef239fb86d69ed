"""What it costs that sessions take turns: a decision, a turn that is handed on, and programs that share."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median, quantiles
from time import thread_time

from gpuferry.monitor.arbiter.gpu import Arbiter, Voice
from gpuferry.monitor.arbiter.gpus import Gpus
from gpuferry.monitor.arbiter.words import Packet, Word
from gpuferry.monitor.policy.quota import Fixed
from gpuferry.monitor.policy.timeshare import TimeSharing
from gpuferry.monitor.policy.tokens import Client, Turn

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import guest_environment

from .probe import measured, probe
from .rows import Row, cost

MICRO = ROOT / "bench" / "micro"
FUNCTION = ROOT / "bench" / "workloads" / "function" / "function.cu"
GPUS, WAITING, EVENTS = 64, 10_000, 4_000
IDLE_FEW, IDLE_MANY = 10, 10_000
SECOND, QUOTA, WINDOW = 10**9, 3 * 10**7, 10**10
ROUNDS = 3  # the best one counts: the machine is shared, and what disturbs only ever adds
WORK = 3.0  # seconds of each program
SHARED = ("--sharing", "time", "--quota", "0.03")


def rows() -> list[Row]:
    """Measure what turns cost: the rows of the benchmark's table."""
    few, many = (min(turn_cost(idle) for _ in range(ROUNDS)) for idle in (IDLE_FEW, IDLE_MANY))
    free = min(alone() for _ in range(ROUNDS))
    alone_in_turns = min(alone(*SHARED) for _ in range(ROUNDS))
    both = min(together(*SHARED) for _ in range(ROUNDS))
    handed, call = handover()
    return [
        cost("turn_decision", decision() * 1e6, heap_floor() * 1e6, "µs"),
        cost("turn_idle_sessions", many * 1e6, few * 1e6, "µs"),
        cost("turn_handover", handed * 1e6, call * 1e6, "µs"),
        cost("turns_alone", alone_in_turns, free, "s"),
        cost("turns_together", both, 2 * free, "s"),
    ]


# -- the policy and the arbiter


def decision() -> float:
    """Seconds of an event with the decision that it brings, 99th percentile, own time of the thread."""
    return min(quantiles(decisions(), n=100)[98] for _ in range(ROUNDS))


def decisions() -> Iterator[float]:
    chance = random.Random(0)
    policies = [TimeSharing(WINDOW, Fixed(QUOTA), 0) for _ in range(GPUS)]
    now = 0
    for session in range(WAITING):
        policy = policies[session % GPUS] if session % 2 else policies[0]  # one GPU has half of all
        policy.join(Client(session, chance.choice((0, 5, 20)), chance.choice((0, 0, 30, 300))), now)
        policy.on_arrival(session, now)
    for _ in range(EVENTS):
        policy = policies[0]
        now += 1000
        began = thread_time()
        answer = policy.next(now)
        taken = thread_time() - began
        if not isinstance(answer, Turn):
            raise RuntimeError("nobody may go, of thousands that wait")
        then = now
        now += chance.randrange(QUOTA // 30, QUOTA)
        began = thread_time()
        policy.on_use(answer.session, then, now)
        policy.on_complete(answer.session, now)
        policy.on_arrival(answer.session, now)
        yield taken + thread_time() - began


def heap_floor() -> float:
    """Seconds to take the least of so many from a heap and put it back: the floor."""
    heap: list[tuple[int, int]] = []
    for session in range(WAITING):
        heappush(heap, (session, session))
    began = thread_time()
    for key in range(EVENTS):
        heappop(heap)
        heappush(heap, (WAITING + key, key))
    return (thread_time() - began) / EVENTS


class _Nowhere:
    def send(self, packet: Packet) -> None:
        """Drop a packet for an API server."""

    def show(self, stop: bool, wanted: bool) -> None:
        """Drop what an API server would read in its page."""


def turn_cost(idle: int) -> float:
    """Seconds that an arbiter works for one turn of one of two sessions, beside so many that want none."""

    def make(device: int, voice: Voice) -> Arbiter:
        return Arbiter(TimeSharing(WINDOW, Fixed(QUOTA), 0), 1, SECOND, voice)

    gpus = Gpus(make)
    for key in range(idle + 2):
        gpus.add(key, (0,), _Nowhere())
        gpus.assign(key, key + 1, 0, 0, "", 0)
    now, turn = 0, 1
    gpus.heard(0, Packet(Word.ASK, turn), now)
    began = thread_time()
    for turn in range(2, EVENTS):
        gpus.heard(turn % 2 ^ 1, Packet(Word.ASK, turn), now)
        now += QUOTA
        gpus.tick(now)
        gpus.heard(turn % 2, Packet(Word.BACK, turn), now)
    return (thread_time() - began) / EVENTS


# -- real programs


def handover() -> tuple[float, float]:
    """Median seconds from the last answer of one program to the first of the next, and of one call alone."""
    taker = toolchain.program(MICRO / "taker.c")
    options = (
        "--sharing",
        "time",
        "--quota",
        "0.01",
        "--window",
        "1",
        "--pool",
        "2",
        "--log-level",
        "warning",
    )
    with monitor(*options) as server:
        said = [map(float, lines.split()) for lines in _at_once(server, [[str(taker), "4"]] * 2)]
    with monitor("--pool", "1", "--log-level", "warning") as server:
        call = _one_call(server)
    answers = sorted((when, who) for who, times in enumerate(said) for when in times)
    gaps = [after - before for (before, one), (after, other) in pairwise(answers) if one != other]
    return median(gaps), call


def _one_call(server: Monitor) -> float:
    """Seconds of a small copy from the device, with nobody else there."""
    return measured(server.run(probe("small_d2h")))["small_d2h"]


def alone(*options: str) -> float:
    """Seconds of a program that is always busy."""
    return _longest(options, 1)


def together(*options: str) -> float:
    """Seconds until two of them are done."""
    return _longest(options, 2)


def _longest(options: Sequence[str], count: int) -> float:
    program = toolchain.program(FUNCTION)
    command = [str(program), "0", str(WORK), "1.0", "1"]
    with monitor(*options, "--pool", "2", "--log-level", "warning") as server:
        _at_once(server, [[str(program), "0", "0.1", "1.0", "1"]])  # compiles the kernel
        said = [line.split() for line in _at_once(server, [command] * count)]
    return max(float(words[2]) for words in said) - min(float(words[1]) for words in said)


def _at_once(server: Monitor, commands: Sequence[Sequence[str]]) -> list[str]:
    """What these programs print, which run at the same time."""
    environment = guest_environment(server.settings())
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    said = [each.communicate()[0] for each in running]
    if any(each.returncode for each in running):
        raise RuntimeError("a measured program failed")
    return said
