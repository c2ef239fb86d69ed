"""Grants, the queue, quotas, and the pool behind them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import control_pb2, frames

from tests.helpers import processes
from tests.monitor import harness
from tests.monitor.fake_apiserver import MEMORY
from tests.monitor.fake_guest import (
    FakeGuest,
    Refused,
    connect,
    hello_frame,
    outcome,
    read_exactly,
    read_frame,
    read_greeting,
)

REASON = handshake.Reason


@pytest.fixture(scope="module")
def shared_monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "2") as running:
        yield running


@pytest.fixture
def monitor(shared_monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    """Whole before and after each test."""
    shared_monitor.wait_idle(2)
    yield shared_monitor
    status = shared_monitor.wait_idle(2)
    assert not status.sessions
    assert not status.queue
    assert status.devices[0].memory_granted == 0


def waiting_guest(monitor: harness.Monitor, **changes: Any) -> tuple[threading.Thread, list[object]]:
    """A guest that is in the queue, in a thread; what becomes of it goes into the list."""
    result: list[object] = []

    def ask() -> None:
        try:
            result.append(FakeGuest(monitor.address, monitor.token, **changes))
        except (Refused, EOFError) as error:
            result.append(error)

    before = len(monitor.status().queue)
    thread = threading.Thread(target=ask)
    thread.start()
    monitor.wait_for(lambda status: len(status.queue) == before + 1, "one more in the queue")
    return thread, result


def test_each_guest_has_an_api_server_of_its_own(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.address, monitor.token) as one, FakeGuest(monitor.address, monitor.token) as two:
        assert one.server_pid != two.server_pid
        assert one.quota == two.quota == MEMORY // 2
        assert (one.echo(b"1"), two.echo(b"2")) == (b"1", b"2")
    monitor.wait_idle(2)


def test_a_clean_api_server_serves_again(monitor: harness.Monitor) -> None:
    before = monitor.status()
    for _ in range(6):
        FakeGuest(monitor.address, monitor.token).close()
    status = monitor.wait_idle(2)
    assert {server.pid for server in status.servers} == {server.pid for server in before.servers}
    assert status.monitor.sessions_granted == before.monitor.sessions_granted + 6
    assert status.devices[0].memory_granted == 0


def test_an_unclean_api_server_is_replaced(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.address, monitor.token, function=b"unclean") as guest:
        pid = guest.server_pid
    harness.wait_until(lambda: not harness.alive({pid}), "end of the unclean API server")
    status = monitor.wait_idle(2)
    assert pid not in {server.pid for server in status.servers}
    assert status.devices[0].memory_granted == 0


@pytest.mark.parametrize("busy", [False, True])
def test_a_killed_api_server_is_replaced(monitor: harness.Monitor, busy: bool) -> None:
    with (
        FakeGuest(monitor.address, monitor.token) as guest,
        FakeGuest(monitor.address, monitor.token) as other,
    ):
        if not busy:
            guest.close()
            monitor.wait_idle(1)
        os.kill(guest.server_pid, signal.SIGKILL)
        if busy:
            with pytest.raises((EOFError, ConnectionError)):
                guest.echo(b"gone")
        monitor.wait_for(
            lambda status: (
                status.devices[0].pool_idle == 1
                and guest.server_pid not in {server.pid for server in status.servers}
            ),
            "replacement",
        )
        assert other.echo(b"fine") == b"fine"
    status = monitor.wait_idle(2)
    assert status.devices[0].memory_granted == 0
    assert not status.sessions


def test_a_killed_api_server_takes_its_helpers_along() -> None:
    with harness.monitor("--pool", "1", GPUFERRY_FAKE_CHILD="1") as monitor:
        pid = monitor.wait_idle(1).servers[0].pid
        group = processes.descendants(pid)
        assert len(group) == 2
        os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: not harness.alive(group), "end of the helpers")


def test_a_guest_survives_an_api_server_that_dies_before_it_served(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.address, monitor.token, function=b"crash") as guest:
        assert guest.proven
        assert guest.echo(b"second try") == b"second try"
    monitor.wait_idle(2)


@pytest.mark.system
def test_a_guest_before_which_api_servers_end_again_and_again_is_refused() -> None:
    """It may be what ends them: others, and the device, are not to go with them."""
    with harness.monitor("--pool", "2") as monitor:
        with FakeGuest(monitor.address, monitor.token, meet=False, function=b"fatal") as guest:
            with pytest.raises(Refused, match="3 API servers ended") as caught:
                outcome(guest.connection)
            assert caught.value.reason == REASON.NO_CAPACITY
        status = monitor.wait_idle(2)
        assert not status.sessions
        assert status.devices[0].memory_granted == 0
        assert "device taken out" not in monitor.log.read_text()


def test_welcome_does_not_wait_for_the_api_server() -> None:
    with harness.monitor("--pool", "1") as monitor:
        (server,) = monitor.status().servers
        os.kill(server.pid, signal.SIGSTOP)
        with FakeGuest(monitor.address, monitor.token, meet=False, memory=MEMORY // 4) as guest:
            assert guest.proven
            (session,) = monitor.status().sessions
            assert (session.id, session.memory_quota) == (guest.number, guest.quota)
            assert guest.quota == MEMORY // 4
            os.kill(server.pid, signal.SIGCONT)
            guest.meet()
            assert guest.echo(b"at last") == b"at last"


def test_a_welcomed_guest_waits_for_another_api_server() -> None:
    """It was told all that there is to tell: nothing more comes before that server's own words."""
    with (
        harness.monitor("--pool", "1") as monitor,
        FakeGuest(monitor.address, monitor.token, meet=False, function=b"crash") as guest,
    ):
        guest.connection.sendall(b"said early")
        guest.meet()
        assert read_exactly(guest.connection, 10) == b"said early"


def test_another_api_server_must_stand_by_welcome() -> None:
    with (
        harness.monitor("--pool", "2", GPUFERRY_FAKE_TERMS="1") as monitor,
        FakeGuest(monitor.address, monitor.token, meet=False, function=b"crash") as guest,
    ):
        with pytest.raises(Refused) as caught:
            outcome(guest.connection)
        assert caught.value.reason == REASON.NO_CAPACITY
        status = monitor.wait_idle(2)
        assert not status.sessions
        assert status.devices[0].memory_granted == 0


def test_first_come_first_served(monitor: harness.Monitor) -> None:
    running = [FakeGuest(monitor.address, monitor.token) for _ in range(2)]
    first, first_result = waiting_guest(monitor, program=b"first")
    second, second_result = waiting_guest(monitor, program=b"second")
    queue = monitor.status().queue
    assert [waiting.program for waiting in queue] == ["first", "second"]
    running[0].close()
    first.join(harness.DEADLINE)
    assert isinstance(first_result[0], FakeGuest)
    assert not second_result
    running[1].close()
    second.join(harness.DEADLINE)
    assert isinstance(second_result[0], FakeGuest)
    for guest in (first_result[0], second_result[0]):
        guest.close()


def test_the_head_of_the_queue_holds_up_those_behind_it(monitor: harness.Monitor) -> None:
    """Strict order: a large request is not starved by small ones that would fit."""
    with FakeGuest(monitor.address, monitor.token, memory=MEMORY // 4) as running:
        large, large_result = waiting_guest(monitor, memory=MEMORY, program=b"large")
        small, small_result = waiting_guest(monitor, memory=MEMORY // 4, program=b"small")
        assert not small_result
        assert running.echo(b"on") == b"on"
    large.join(harness.DEADLINE)
    assert isinstance(large_result[0], FakeGuest)
    assert large_result[0].quota == MEMORY
    large_result[0].close()
    small.join(harness.DEADLINE)
    assert isinstance(small_result[0], FakeGuest)
    small_result[0].close()


def test_waiting_has_an_end() -> None:
    with (
        harness.monitor("--pool", "1", "--max-wait", "0.2") as monitor,
        FakeGuest(monitor.address, monitor.token),
    ):
        with pytest.raises(Refused) as caught:
            FakeGuest(monitor.address, monitor.token)
        assert (caught.value.reason, caught.value.cuda_error) == (REASON.NO_CAPACITY, 46)
        assert "0.2 s" in caught.value.text


@pytest.mark.parametrize(
    ("wish", "error", "text"),
    [
        ({"extensions": {2: b"zone=nowhere"}}, 46, "1 GPU with zone=nowhere asked for, there are 0"),
        ({"memory": 1 << 50}, 2, f"{1 << 50} bytes of device memory asked for, at most"),
    ],
    ids=["label", "memory"],
)
def test_what_no_device_has(monitor: harness.Monitor, wish: dict[str, Any], error: int, text: str) -> None:
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.address, monitor.token, **wish)
    assert (caught.value.reason, caught.value.cuda_error) == (REASON.NO_CAPACITY, error)
    assert text in caught.value.text


def test_a_guest_may_wait_less_than_the_monitor_allows(monitor: harness.Monitor) -> None:
    running = [FakeGuest(monitor.address, monitor.token) for _ in range(2)]
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.address, monitor.token, extensions={3: (100).to_bytes(4, "little")})
    assert caught.value.reason == REASON.NO_CAPACITY
    assert "0.1 s (place 1 in the queue)" in caught.value.text
    for guest in running:
        guest.close()
    monitor.wait_idle(2)


def test_a_waiting_guest_is_told_its_place(monitor: harness.Monitor) -> None:
    running = [FakeGuest(monitor.address, monitor.token) for _ in range(2)]
    first, first_result = waiting_guest(monitor)
    with connect(monitor.address) as second:
        second.sendall(hello_frame(read_greeting(second), monitor.token))
        op, body = read_frame(second)
        assert (op, frames.Queued.unpack(body)) == (frames.Frame.QUEUED, (2, 2))
        running[0].close()
        while frames.Queued.unpack(body) == (2, 2):  # who waits for long is told again
            op, body = read_frame(second)
        assert (op, frames.Queued.unpack(body)) == (frames.Frame.QUEUED, (1, 1))
        running[1].close()
        assert outcome(second)
    first.join(harness.DEADLINE)
    assert isinstance(first_result[0], FakeGuest)
    first_result[0].close()
    monitor.wait_idle(2)


def test_limits_are_the_shorter_of_what_both_want() -> None:
    options = ("--pool", "1", "--wall-limit", "100", "--idle-limit", "0")
    with harness.monitor(*options) as monitor:
        asked = {4: (200).to_bytes(4, "little"), 5: (30).to_bytes(4, "little")}
        with FakeGuest(monitor.address, monitor.token, extensions=asked):
            (session,) = monitor.status().sessions
            assert (session.wall_limit_seconds, session.idle_limit_seconds) == (100, 30)


def test_labels_choose_the_device() -> None:
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2") as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.address, monitor.token, extensions={2: b"gpu=1"}):
            assert [session.device for session in monitor.status().sessions] == [1]
            with pytest.raises(Refused) as caught:
                FakeGuest(monitor.address, monitor.token, extensions={2: b"zone=b"})
            assert "zone=b" in caught.value.text


def test_more_are_started_while_few_are_idle() -> None:
    with harness.monitor("--pool", "1", "--min-idle", "2", "--memory", "64MiB") as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.address, monitor.token), FakeGuest(monitor.address, monitor.token):
            assert len(monitor.wait_idle(2).servers) == 4


def test_sessions_are_listed_shown_and_ended(monitor: harness.Monitor) -> None:
    assert "no sessions" in monitor.run("session", "list").stdout
    running = [FakeGuest(monitor.address, monitor.token, function=b"resnet") for _ in range(2)]
    waiting, result = waiting_guest(monitor)
    listed = json.loads(monitor.run("session", "list", "--json").stdout)["sessions"]
    assert [one["state"] for one in listed] == ["running", "running", "waiting"]
    table = monitor.run("session", "list").stdout
    assert "resnet" in table
    assert "waiting, place 1" in table
    number = str(listed[2]["id"])
    assert json.loads(monitor.run("session", "show", number, "--json").stdout)["sessions"] == [
        listed[2] | {"waited_seconds": pytest.approx(listed[2]["waited_seconds"], abs=60)}
    ]
    killed = monitor.run("session", "kill", number, "--reason", "too many of you")
    assert (killed.returncode, killed.stderr) == (0, "")
    waiting.join(harness.DEADLINE)
    assert isinstance(result[0], Refused)
    assert result[0].text == "too many of you"
    monitor.run("session", "kill", str(listed[0]["id"]), "--reason", "enough")
    monitor.wait_idle(1)
    again = monitor.run("session", "kill", number)
    shown = monitor.run("session", "show", number)
    for gone in (again, shown):
        assert gone.returncode == 3
        assert gone.stderr == f"gpuferry: there is no session {number}\n  see `gpuferry session list`\n"
    for guest in running:
        guest.close()
    monitor.wait_idle(2)


def test_a_guest_may_leave_the_queue(monitor: harness.Monitor) -> None:
    running = [FakeGuest(monitor.address, monitor.token) for _ in range(2)]
    with connect(monitor.address) as impatient:
        impatient.sendall(hello_frame(read_greeting(impatient), monitor.token))
        monitor.wait_for(lambda status: len(status.queue) == 1, "one in the queue")
    monitor.wait_for(lambda status: not status.queue, "an empty queue")
    for guest in running:
        guest.close()
    monitor.wait_idle(2)


def test_a_guest_must_not_speak_before_welcome(monitor: harness.Monitor) -> None:
    running = [FakeGuest(monitor.address, monitor.token) for _ in range(2)]
    with connect(monitor.address) as hasty:
        hasty.sendall(hello_frame(read_greeting(hasty), monitor.token) + b"and more")
        with pytest.raises(Refused) as caught:
            outcome(hasty)
    assert caught.value.reason == REASON.MALFORMED
    for guest in running:
        assert guest.echo(b"fine") == b"fine"
        guest.close()


def test_more_memory_than_there_is(monitor: harness.Monitor) -> None:
    with pytest.raises(Refused) as caught:
        FakeGuest(monitor.address, monitor.token, memory=MEMORY + 1)
    assert (caught.value.reason, caught.value.cuda_error) == (REASON.NO_CAPACITY, 2)
    assert str(MEMORY) in caught.value.text


def test_quota_asked_for_and_by_default() -> None:
    with harness.monitor("--pool", "3", "--memory", "64MiB", "--headroom", "512MiB") as monitor:
        with FakeGuest(monitor.address, monitor.token) as usual:
            assert usual.quota == 64 << 20
        with FakeGuest(monitor.address, monitor.token, memory=100 << 20) as asked:
            assert asked.quota == 100 << 20
        with pytest.raises(Refused):
            FakeGuest(monitor.address, monitor.token, memory=MEMORY - (512 << 20) + 1)


def test_devices_share_the_work() -> None:
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2") as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.address, monitor.token), FakeGuest(monitor.address, monitor.token):
            status = monitor.status()
            assert {session.device for session in status.sessions} == {0, 1}
            assert {device.name for device in status.devices} == {"Fake 0", "Fake 1"}


def test_guests_may_come_before_the_pool_is_ready() -> None:
    with (
        harness.monitor("--pool", "1", ready=False) as monitor,
        FakeGuest(monitor.address, monitor.token, memory=MEMORY) as guest,
    ):
        assert guest.quota == MEMORY


def test_session_in_status(monitor: harness.Monitor) -> None:
    with FakeGuest(
        monitor.tcp, monitor.token, function=b"resnet", program=b"app", tenant=b"t", pid=4242
    ) as guest:
        guest.echo(b"x")
        (session,) = monitor.wait_for(
            lambda status: [one for one in status.sessions if one.calls_async], "its API server's figures"
        ).sessions
        assert (session.function, session.program, session.tenant) == ("resnet", "app", "t")
        assert (session.guest_pid, session.server_pid) == (4242, guest.server_pid)
        assert (session.calls_async, session.calls_sync, session.memory_quota) == (7, 3, MEMORY // 2)
        assert session.peer.startswith("127.0.0.1:")
        assert session.age_seconds >= 0


def test_many_sessions_leave_nothing_behind(monitor: harness.Monitor) -> None:
    FakeGuest(monitor.address, monitor.token).close()
    monitor.wait_idle(2)
    descriptors = len(os.listdir(f"/proc/{monitor.process.pid}/fd"))
    for _ in range(100):
        FakeGuest(monitor.address, monitor.token).close()
    status = monitor.wait_idle(2)
    assert status.devices[0].memory_granted == 0
    assert len(os.listdir(f"/proc/{monitor.process.pid}/fd")) <= descriptors + 2


# -- API servers that do not come up


def test_an_api_server_that_fails_is_tried_again_with_pauses() -> None:
    with harness.failing("--pool", "1", GPUFERRY_FAKE="fail") as (reason, process, log):
        assert reason == "failed no driver to be found"
        assert process.wait(harness.DEADLINE) == 0
        assert log.read_text().count('"event": "server ended"') == 3


def test_an_api_server_that_exits_says_how() -> None:
    with harness.failing("--pool", "1", GPUFERRY_FAKE="exit") as (reason, _, _):
        assert reason == "failed exited with status 9"


def test_no_such_api_server() -> None:
    with harness.failing("--pool", "1", server="/no/such/program") as (reason, _, _):
        assert "/no/such/program" in reason


def test_a_device_where_nothing_lives_is_taken_out() -> None:
    with harness.monitor("--pool", "1", GPUFERRY_SIM_DEVICES="2", GPUFERRY_FAKE_1="fail") as monitor:
        failing = control_pb2.DEVICE_STATE_FAILING
        status = monitor.wait_for(lambda status: status.devices[1].state == failing, "failing device")
        assert status.devices[0].state == control_pb2.DEVICE_STATE_UP
        monitor.wait_for_log('"event": "device taken out", "gpu": 1')
        with FakeGuest(monitor.address, monitor.token):
            assert [session.device for session in monitor.status().sessions] == [0]


# -- the end


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_leaves_nothing(number: signal.Signals) -> None:
    with (
        harness.monitor("--pool", "2", GPUFERRY_FAKE_CHILD="1") as monitor,
        FakeGuest(monitor.address, monitor.token) as guest,
    ):
        monitor.wait_idle(1)
        below = processes.descendants(monitor.process.pid)
        assert len(below) >= 5
        monitor.channel.close()
        monitor.process.send_signal(number)
        assert monitor.process.wait(harness.DEADLINE) == 0
        harness.wait_until(lambda: not harness.alive(below), "end of all processes")
        with pytest.raises((EOFError, ConnectionError)):
            guest.echo(b"gone")
        assert not os.path.exists(monitor.runtime)


def test_running_sessions_have_time_to_end() -> None:
    with harness.monitor("--pool", "2", "--grace", "3600") as monitor:
        monitor.wait_idle(2)
        guest = FakeGuest(monitor.address, monitor.token)
        waiting = connect(monitor.address)
        nonce = read_greeting(waiting)
        monitor.process.send_signal(signal.SIGTERM)
        monitor.wait_for_log("waiting for sessions")
        with waiting:
            waiting.sendall(hello_frame(nonce, monitor.token))
            with pytest.raises(Refused) as caught:
                outcome(waiting)
        assert caught.value.reason == REASON.SHUTTING_DOWN
        assert guest.echo(b"not done yet") == b"not done yet"
        guest.close()
        assert monitor.process.wait(harness.DEADLINE) == 0


def test_at_the_end_of_the_grace_sessions_are_told() -> None:
    with harness.monitor("--pool", "1", "--grace", "0.2") as monitor:
        guest = FakeGuest(monitor.address, monitor.token)
        monitor.process.send_signal(signal.SIGTERM)
        with pytest.raises((EOFError, ConnectionError)):
            guest.echo(b"x" + guest.connection.recv(1))
        assert monitor.process.wait(harness.DEADLINE) == 0
        assert "the GPU server is shutting down" in monitor.log.read_text()
        guest.close()


def test_a_second_signal_ends_it_now() -> None:
    with (
        harness.monitor("--pool", "1", "--grace", "3600") as monitor,
        FakeGuest(monitor.address, monitor.token),
    ):
        monitor.process.send_signal(signal.SIGTERM)
        monitor.wait_for_log("waiting for sessions")
        monitor.process.send_signal(signal.SIGTERM)
        assert monitor.process.wait(harness.DEADLINE) == 0


def test_a_killed_monitor_takes_its_api_servers_along() -> None:
    with harness.monitor("--pool", "2") as monitor, FakeGuest(monitor.address, monitor.token) as guest:
        monitor.wait_idle(1)
        below = processes.descendants(monitor.process.pid)
        monitor.process.kill()
        monitor.process.wait(harness.DEADLINE)
        harness.wait_until(lambda: not harness.alive(below), "end of all processes")
        with pytest.raises((EOFError, ConnectionError)):
            guest.echo(b"gone")


def test_a_private_monitor_ends_with_its_parent() -> None:
    with harness.monitor("--pool", "1") as monitor:
        monitor.parent.close()
        assert monitor.process.wait(harness.DEADLINE) == 0
        assert not os.path.exists(monitor.runtime)
