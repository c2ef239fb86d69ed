"""Parts of a GPU and labels, from the command line to the device: what sessions are promised, who shares a
GPU with whom, and who waits, with several simulated devices and real programs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import frames

from tests.helpers.programs import ROUND_TRIP
from tests.helpers.tokens import token_of
from tests.helpers.warm import CLI, Popen
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused
from tests.monitor.test_sessions import waiting_guest

TOKEN = token_of("fractions")
STAYS = ROUND_TRIP + "sys.stdout.flush()\nsys.stdin.readline()\n"
GPUS = 3
OPTIONS = ("--pool", "3", "--policy", "kubeshare", "--queue", "backfill", "--orphan-grace", "60")


def portion(
    request: int = 0, limit: int = 0, affinity: str = "", anti: str = "", exclusion: str = ""
) -> dict[str, Any]:
    """The extension of a HELLO."""
    said = frames.Portion(request, limit, affinity.encode(), anti.encode(), exclusion.encode())
    return {"extensions": {handshake.Extension.PORTION: said.pack()}}


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, GPUFERRY_SIM_DEVICES=str(GPUS), GPUFERRY_TOKEN=TOKEN) as running:
        running.wait_idle(3 * GPUS)
        yield running


def devices(status: Any) -> list[int]:
    return [device.time_promised for device in status.devices]


@pytest.mark.system
def test_they_stand_in_status_and_come_back_with_the_end(monitor: harness.Monitor) -> None:
    red = portion(300, 600, "red", "noisy", "team-a")
    with FakeGuest(monitor.tcp, TOKEN, **red) as one:
        status = monitor.wait_for(lambda s: s.sessions, "a session")
        said = status.sessions[0].portion
        assert (said.request, said.limit) == (300, 600)
        assert (said.affinity, said.anti_affinity, said.exclusion) == ("red", "noisy", "team-a")
        assert devices(status) == [300, 0, 0]
        shown = monitor.run("status").stdout
        assert "request 0.3, limit 0.6, affinity red, anti-affinity noisy, exclusive team-a" in shown
        listed = json.loads(monitor.run("session", "list", "--json").stdout)["sessions"]
        assert listed[0]["portion"]["request"] == 300
        assert one.echo(b"works") == b"works"
    monitor.wait_for(lambda s: devices(s) == [0] * GPUS and not s.sessions, "all is free")


@pytest.mark.system
def test_who_cannot_be_placed_waits_and_the_reason_is_shown(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN, **portion(700, affinity="red")):
        thread, result = waiting_guest(monitor, **portion(400, affinity="red"))
        (waiting,) = monitor.status().queue
        assert waiting.reason == (
            "affinity red is on GPU 0: GPU 0: 0.4 of a GPU's time is more than it has to promise"
        )
        assert waiting.portion.request == 400
        shown = monitor.run("session", "list", "--waiting", "--json").stdout
        assert [one["reason"] for one in json.loads(shown)["sessions"]] == [waiting.reason]
        with FakeGuest(monitor.tcp, TOKEN, **portion(400)):  # others are not held up: GPU 1
            assert devices(monitor.status()) == [700, 400, 0]
    thread.join(harness.DEADLINE)
    (guest,) = result
    assert isinstance(guest, FakeGuest)
    guest.close()


@pytest.mark.system
def test_the_reason_is_in_the_refusal_of_who_waited_too_long(monitor: harness.Monitor) -> None:
    patience = {handshake.Extension.MAX_WAIT: (50).to_bytes(4, "little")}
    alone = portion(exclusion="a")
    with contextlib.ExitStack() as stack:
        for _ in range(GPUS):
            stack.enter_context(FakeGuest(monitor.tcp, TOKEN, **portion(exclusion="a", request=1000)))
        with pytest.raises(Refused, match="sessions there are exclusive, and this one is not") as refused:
            FakeGuest(monitor.tcp, TOKEN, extensions=patience)
        assert refused.value.reason == handshake.Reason.NO_CAPACITY
        with FakeGuest(monitor.tcp, TOKEN, **alone) as guest:  # who is promised nothing shares what is left
            assert guest.echo(b"in") == b"in"


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        (portion(700, 600), "BAD_REQUEST", "request 0.7 and limit 0.6"),
        (portion(0, 1001), "BAD_REQUEST", "that at most 1"),
        (portion(65535), "BAD_REQUEST", "GPUFERRY_GPU_REQUEST"),
        (portion(affinity="a b"), "BAD_REQUEST", "affinity 'a b' is no label"),
        (portion(anti="-"), "BAD_REQUEST", "anti-affinity '-' is no label"),
        (portion(exclusion="a\x07"), "MALFORMED", "exclusive holds control characters"),
        (portion(exclusion="a,b"), "BAD_REQUEST", "exclusive 'a,b' is no label"),
        (portion(affinity="x" * 64), "BAD_REQUEST", "63 at most"),
        ({**portion(affinity="red"), "devices": 2}, "BAD_REQUEST", "affinity red with 2 GPUs"),
        ({"extensions": {handshake.Extension.PORTION: bytes(7)}}, "MALFORMED", "of 7 bytes"),
    ],
)
def test_nonsense_is_refused_with_the_next_step(
    shared: harness.Monitor, changes: dict[str, Any], reason: str, text: str
) -> None:
    with pytest.raises(Refused) as refused:
        FakeGuest(shared.tcp, TOKEN, **changes)
    assert handshake.Reason(refused.value.reason).name == reason
    assert text in refused.value.text


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2", GPUFERRY_TOKEN=TOKEN) as running:
        yield running


@pytest.mark.system
def test_another_monitor_finds_them_again(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN, **portion(300, 600, "red", "noisy", "a")) as guest:
        monitor.wait_for(lambda s: s.sessions, "a session")
        monitor.process.kill()
        successor = monitor.succeed(*OPTIONS)
        status = successor.wait_for(lambda s: s.sessions and devices(s) == [300, 0, 0], "adoption")
        said = status.sessions[0].portion
        assert (said.request, said.limit, said.affinity) == (300, 600, "red")
        successor.wait_idle(3 * GPUS - 1)
        with FakeGuest(successor.tcp, TOKEN, **portion(100, 0, "red", "", "a")):
            assert devices(successor.status()) == [400, 0, 0]
        successor.wait_for(lambda s: devices(s) == [300, 0, 0], "its end")
        with FakeGuest(successor.tcp, TOKEN, **portion(100)):
            assert devices(successor.status()) == [300, 100, 0]  # GPU 0 is a's
        assert guest.echo(b"still") == b"still"


def test_another_monitor_keeps_them_where_they_asked_to_be() -> None:
    options = ("--pool", "1", "--orphan-grace", "60")
    with harness.monitor(*options, GPUFERRY_SIM_DEVICES="2", GPUFERRY_TOKEN=TOKEN) as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.tcp, TOKEN, extensions={handshake.Extension.LABELS: b"gpu=1"}):
            session = monitor.wait_for(lambda s: s.sessions, "a session").sessions[0].id
            monitor.process.kill()
            successor = monitor.succeed(*options)
            successor.wait_for(lambda s: s.sessions, "adoption")
            successor.wait_idle(1)
            moved = successor.run("migrate", str(session), "--to", "gpu:0")
            assert moved.returncode
            assert "GPU 0 lacks a label that it asked for" in moved.stderr


@pytest.mark.system
def test_labels_of_two_tenants_meet_only_if_the_operator_says_so() -> None:
    for scope, place in (("tenant", 0), ("server", 1)):
        options = ("--pool", "2", "--label-scope", scope, "--policy", "kubeshare")
        with harness.monitor(*options, GPUFERRY_SIM_DEVICES="2", GPUFERRY_TOKEN=TOKEN) as running:
            running.wait_idle(4)
            with (
                FakeGuest(running.tcp, TOKEN, tenant=b"a", **portion(100, exclusion="a")),
                FakeGuest(running.tcp, TOKEN, tenant=b"b", **portion(200, exclusion="b")),
            ):
                status = running.wait_for(lambda s: len(s.sessions) == 2, "two sessions")
                assert [one.device for one in status.sessions] == [0, place]


# -- real programs


@contextlib.contextmanager
def program(monitor: harness.Monitor, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has copied something to its GPU and back, and stays until the end of this block."""
    command = [*CLI, "run", *options, "--", sys.executable, "-c", STAYS]
    settings = harness.environment(monitor.runtime, GPUFERRY_TOKEN=TOKEN)
    with (
        Popen(command, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        harness.killed_on_failure(process),
    ):
        yield process
        assert process.communicate("\n", harness.DEADLINE)[0] in ("same\n", "")
        assert process.returncode == 0


def runs(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "same\n"


@pytest.mark.system
def test_real_programs_are_where_their_labels_let_them_be() -> None:
    with harness.monitor(
        *OPTIONS, server=None, GPUFERRY_SIM_DEVICES=str(GPUS), GPUFERRY_TOKEN=TOKEN
    ) as running:
        running.wait_idle(3 * GPUS)
        asked = (
            ("--gpu-request", "0.3", "--gpu-limit", "0.6", "--affinity", "red", "--memory", "64MiB"),
            ("--gpu-request", "0.2", "--affinity", "red", "--memory", "64MiB"),
            ("--gpu-request", "0.4", "--anti-affinity", "noisy", "--memory", "64MiB"),
            ("--gpu-request", "0.1001", "--anti-affinity", "noisy", "--affinity", "red"),
        )
        with contextlib.ExitStack() as stack:
            for options in asked:
                runs(stack.enter_context(program(running, *options)))
            status = running.status()
            assert devices(status) == [601, 400, 0]
            last = stack.enter_context(program(running, "--exclusive", "team-a", "--gpu-request", "1"))
            runs(last)
            assert devices(running.status()) == [601, 400, 1000]
            with program(running, "--anti-affinity", "noisy", "--memory", "64MiB") as late:
                status = running.wait_for(lambda s: s.queue, "it waits")
                assert "anti-affinity noisy: a session there says the same" in status.queue[0].reason
                stack.close()
                runs(late)
        running.wait_for(lambda s: devices(s) == [0] * GPUS and not s.sessions, "all is free")


@pytest.mark.parametrize(
    ("options", "settings", "text"),
    [
        (("--gpu-request", "1.5"), {}, "1.5 is more than a GPU: write a number from 0 to 1"),
        (("--gpu-request", "half"), {}, "'half' is no part of a GPU"),
        (
            ("--gpu-request", "0.7", "--gpu-limit", "0.6"),
            {},
            "a GPU request of 0.7 is more than the GPU limit",
        ),
        (("--gpu-request", "0.7"), {"GPUFERRY_GPU_LIMIT": "0.6"}, "a GPU request of 0.7 is more"),
        (("--gpu-limit", "0"), {}, "a GPU limit of 0 lets the program have nothing"),
        (("--affinity", "a b"), {}, "'a b' is no label"),
        (("--affinity", "red", "--gpus", "2"), {}, "GPUFERRY_AFFINITY is for programs of one GPU"),
        ((), {"GPUFERRY_EXCLUSIVE": "-"}, "GPUFERRY_EXCLUSIVE: '-' is no label"),
        ((), {"GPUFERRY_LABELS": "zone=a,gpu"}, "GPUFERRY_LABELS: 'gpu' is no label of a GPU"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "env"])
def test_the_launcher_refuses_nonsense(
    shared: harness.Monitor, verb: str, options: tuple[str, ...], settings: dict[str, str], text: str
) -> None:
    program = ("--", "true") if verb == "run" else ()
    done = shared.run(verb, *options, *program, **settings)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.parametrize("label", ["x", "zone=", "=a", "zone=a,gpu", ""])
def test_the_launcher_refuses_labels_without_a_value(shared: harness.Monitor, label: str) -> None:
    done = shared.run("run", "--label", label, "--", "true")
    assert done.returncode == 2
    assert "is no label of a GPU: write NAME=VALUE, as zone=a" in done.stderr


def test_images_find_them_in_the_environment(shared: harness.Monitor) -> None:
    done = shared.run("env", "--json", "--gpu-request", ".25", "--exclusive", "team-a")
    settings = json.loads(done.stdout)
    assert (settings["GPUFERRY_GPU_REQUEST"], settings["GPUFERRY_EXCLUSIVE"]) == (".25", "team-a")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"GPUFERRY_GPU_REQUEST": "1.001"}, "GPUFERRY_GPU_REQUEST=1.001 is no part of a GPU"),
        ({"GPUFERRY_GPU_REQUEST": "0.5", "GPUFERRY_GPU_LIMIT": "0.4"}, "is less than GPUFERRY_GPU_REQUEST"),
        ({"GPUFERRY_GPU_LIMIT": "0"}, "is less than anything"),
        ({"GPUFERRY_AFFINITY": "x" * 64}, "is no label: write at most 63 letters"),
        ({"GPUFERRY_ANTI_AFFINITY": "a\x01"}, "is no label"),
    ],
)
def test_the_guest_library_refuses_nonsense(
    shared: harness.Monitor, settings: dict[str, str], text: str
) -> None:
    """In an image nobody went through the launcher."""
    injected = json.loads(shared.run("env", "--json", "--monitor", shared.tcp, GPUFERRY_TOKEN=TOKEN).stdout)
    done = harness.run(
        [sys.executable, "-c", ROUND_TRIP], harness.environment(shared.runtime) | injected | settings
    )
    assert done.returncode == 1
    assert text in done.stderr
    assert "error 1" in done.stderr or "error 1" in done.stdout


def test_the_arbiter_knows_what_a_program_was_promised() -> None:
    with harness.monitor("--pool", "1", "--sharing", "time", server=None, GPUFERRY_TOKEN=TOKEN) as running:
        running.wait_idle(1)
        with program(running, "--gpu-request", "0.3", "--gpu-limit", "0.6") as one:
            runs(one)
            status = running.wait_for(lambda s: s.sessions and s.sessions[0].turns.request, "turns")
            assert (status.sessions[0].turns.request, status.sessions[0].turns.limit) == (300, 600)
