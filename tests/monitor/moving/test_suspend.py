"""Sessions in files: whose they are, who may read and bring them back. API servers are fake."""

from __future__ import annotations

import json
import secrets
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from gpuferry.migration.seal import seal
from gpuferry.monitor.door.handshake import Extension
from gpuferry.specs._generated import control_pb2, frames, snapshot_pb2

from tests.monitor import harness
from tests.monitor.moves import STATE, granted, guest, replace, session, settled, start


def test_suspend_and_resume(monitor: harness.Monitor, tmp_path: Path) -> None:
    file = str(tmp_path / "snapshot")
    with guest(monitor) as one:
        number = session(monitor).id
        done = monitor.run("session", "suspend", str(number), file)
        assert done.returncode == 0, done.stderr
        settled(monitor, [0, 0])
        suspended = monitor.wait_for(lambda s: all(d.pool_idle == 1 for d in s.devices), "idle devices")
        (away,) = suspended.sessions
        assert (away.id, away.state, away.where) == (number, STATE.SESSION_STATE_SUSPENDED, file)
        assert not away.HasField("device")
        assert "suspended" in monitor.run("session", "list").stdout
        assert file in monitor.run("session", "show", str(number)).stdout
        assert len(suspended.servers) == 2
        again = monitor.run("session", "suspend", str(number), file + "2")
        assert again.returncode == 1
        assert "is suspended" in again.stderr
        done = monitor.run("session", "resume", file, "--to", "gpu:1")
        assert done.returncode == 0, done.stderr
        assert one.echo(b"on") == b"on"
        assert (session(monitor).device, session(monitor).id) == (1, number)
        settled(monitor, [0, 100])
        assert monitor.run("session", "suspend", str(number), file + "3").returncode == 0
        # By way of the queue, to whatever device there is.
        assert monitor.run("session", "resume", file + "3").returncode == 0
        assert one.echo(b"on and on") == b"on and on"
        assert sum(granted(monitor)) == 100
        settled(monitor, [100, 0])


@pytest.mark.system
@pytest.mark.parametrize("way", [(), ("--to", "gpu:1")])
def test_who_is_left_of_a_program_comes_out_of_a_file(
    monitor: harness.Monitor, tmp_path: Path, way: tuple[str, ...]
) -> None:
    """The policy knew it by another number from then on, under which nobody gave its memory back."""
    file, program = str(tmp_path / "snapshot"), {Extension.PROGRAM: secrets.token_bytes(frames.PROGRAM_SIZE)}
    with guest(monitor, extensions=program) as parent, guest(monitor, extensions=program) as child:
        parent.close()
        (left,) = monitor.wait_for(lambda s: len(s.sessions) == 1, "one is left").sessions
        assert (left.id, left.lease) == (child.number, parent.number)
        done = monitor.run("session", "suspend", str(left.id), file)
        assert done.returncode == 0, done.stderr
        settled(monitor, [0, 0])
        done = monitor.run("session", "resume", file, *way)
        assert done.returncode == 0, done.stderr
        assert child.echo(b"on") == b"on"
        assert sum(granted(monitor)) == 100
    settled(monitor, [0, 0])


def suspended_into(monitor: harness.Monitor, file: Path) -> int:
    """The session that is there, in this file now; its number."""
    number = int(session(monitor).id)
    done = monitor.run("session", "suspend", str(number), str(file))
    assert done.returncode == 0, done.stderr
    return number


def test_a_file_tells_whose_session_it_is(monitor: harness.Monitor, tmp_path: Path) -> None:
    with guest(monitor):
        number = suspended_into(monitor, tmp_path / "snapshot")
        done = monitor.run("session", "inspect", str(tmp_path / "snapshot"), "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["session"], told["device_name"], told["suspended"]) == (number, "Fake 0", True)
        assert told["host"] == socket.gethostname()
        assert "version" in monitor.run("session", "inspect", str(tmp_path / "snapshot")).stdout
        for verb in ("inspect", "resume"):
            none = monitor.run("session", verb, str(tmp_path / "none"))
            assert none.returncode == 3
            assert none.stderr.startswith(
                f"gpuferry: there is no file {tmp_path / 'none'}\n  it is looked for on"
            )
        (tmp_path / "other").write_text("other")
        other = monitor.run("session", "inspect", str(tmp_path / "other"))
        assert other.returncode == 1
        assert "is no snapshot of a session" in other.stderr
        assert monitor.run("session", "resume", str(tmp_path / "snapshot")).returncode == 0


def test_its_key_is_made_once_and_nobody_else_can_read_it(monitor: harness.Monitor, tmp_path: Path) -> None:
    key = Path(f"{monitor.runtime}-state", "snapshot.key")
    for turn in ("one", "two"):
        with guest(monitor):
            suspended_into(monitor, tmp_path / turn)
            monitor.wait_idle(2)  # or it comes out of its file on the other GPU
            found = key.read_text()
            assert key.stat().st_mode & 0o777 == 0o600
            assert monitor.run("session", "resume", str(tmp_path / turn)).returncode == 0
            settled(monitor, [100, 0])
        settled(monitor, [0, 0])
    assert key.read_text() == found


def test_a_file_that_was_replaced_is_refused(monitor: harness.Monitor, tmp_path: Path) -> None:
    """Its session stays suspended, whatever lies there instead, and goes on when the file is back."""
    file, earlier = tmp_path / "snapshot", tmp_path / "earlier"
    with guest(monitor) as one:
        number = suspended_into(monitor, earlier)
        assert resume(monitor, earlier) == ""
        assert one.echo(b"on") == b"on"
        suspended_into(monitor, file)
        whole = file.read_bytes()
        secret = Path(f"{monitor.runtime}-state", "snapshot.key").read_text().strip().encode()
        for reason, content in {
            "another session": seal(secret, snapshot_pb2.About(session=number + 1))[0],
            "holds another session": earlier.read_bytes(),
            "another key": seal(b"x" * 32, snapshot_pb2.About(session=number))[0],
            "was replaced: its session was encrypted": PLAIN,
            "is no snapshot": b"",
        }.items():
            file.write_bytes(content)
            refused = resume(monitor, file, allow_unencrypted=True)
            assert reason in refused
            assert str(file) in refused
        assert session(monitor).state == STATE.SESSION_STATE_SUSPENDED
        file.write_bytes(whole)
        assert resume(monitor, file) == ""
        assert one.echo(b"on") == b"on"


PLAIN = b"GPUFERRY SNAPSHOT\0\1\0" + bytes(5000)  # as release 0.1 began its files


def resume(monitor: harness.Monitor, file: Path, **more: Any) -> str:
    """Why the session cannot come out of its file; empty: it has."""
    request = control_pb2.ResumeSessionRequest(file=str(file), **more)
    try:
        (*_, last) = monitor.stub.ResumeSession(request, metadata=monitor.metadata, timeout=harness.DEADLINE)
    except grpc.RpcError as error:
        return str(error.details())
    return str(last.reason)


@pytest.mark.system
def test_a_file_of_the_first_release_must_be_asked_for(first: harness.Monitor, tmp_path: Path) -> None:
    """Its keeper is of that release too, and does not say how the file begins."""
    file = tmp_path / "snapshot"
    with guest(first, "earlier") as one:
        suspended_into(first, file)
        file.write_bytes(PLAIN)
        ledger = Path(first.runtime, "ledger")
        left = json.loads(ledger.read_text())
        del left["released"]  # as the monitor of that release wrote it
        ledger.write_text(json.dumps(left))
        second = replace(first)
        second.wait_for(lambda s: s.sessions and s.sessions[0].where == str(file), "the suspended session")
        second.wait_idle(2)
        refused = resume(second, file)
        assert "--allow-unencrypted" in refused
        assert str(file) in refused
        assert resume(second, file, allow_unencrypted=True) == ""
        assert one.echo(b"on") == b"on"


def test_a_suspended_program_ends(monitor: harness.Monitor, tmp_path: Path) -> None:
    file = str(tmp_path / "snapshot")
    one = guest(monitor)
    assert monitor.run("session", "suspend", str(session(monitor).id), file).returncode == 0
    one.close()
    monitor.wait_for(lambda s: not s.sessions, "end of the session")
    gone = monitor.run("session", "resume", file)
    assert gone.returncode == 3
    assert "its program may have ended" in gone.stderr


def test_a_suspended_session_is_killed(monitor: harness.Monitor, tmp_path: Path) -> None:
    with guest(monitor) as one:
        number = str(session(monitor).id)
        assert monitor.run("session", "suspend", number, str(tmp_path / "snapshot")).returncode == 0
        assert monitor.run("session", "kill", number).returncode == 0
        with pytest.raises((EOFError, ConnectionError)):
            one.echo(b"gone")
        monitor.wait_for(lambda s: not s.sessions, "end of the session")


def test_a_resume_that_fails_leaves_it_suspended(monitor: harness.Monitor, tmp_path: Path) -> None:
    file = str(tmp_path / "snapshot")
    with guest(monitor) as one:
        assert monitor.run("session", "suspend", str(session(monitor).id), file).returncode == 0
        Path(monitor.runtime, "refuse").touch()
        failed = monitor.run("session", "resume", file)
        assert failed.returncode == 1
        assert "still suspended" in failed.stderr
        settled(monitor, [0, 0])
        assert session(monitor).state == STATE.SESSION_STATE_SUSPENDED
        Path(monitor.runtime, "refuse").unlink()
        assert monitor.run("session", "resume", file).returncode == 0
        assert one.echo(b"on") == b"on"


@pytest.mark.system
def test_a_suspended_session_is_adopted(first: harness.Monitor, tmp_path: Path) -> None:
    file = str(tmp_path / "snapshot")
    with guest(first) as one:
        number = session(first).id
        assert first.run("session", "suspend", str(number), file).returncode == 0
        first.wait_idle(2)
        second = replace(first)
        second.wait_for(lambda s: s.sessions and s.sessions[0].where == file, "the suspended session")
        second.wait_idle(2)
        assert second.run("session", "resume", file, "--to", "gpu:1").returncode == 0
        assert one.echo(b"on") == b"on"
        assert (session(second).id, session(second).device) == (number, 1)


def test_a_monitor_stops_while_a_suspended_session_waits_for_room(tmp_path: Path) -> None:
    with start("--pool", "1", devices=1) as monitor:
        monitor.wait_idle(1)
        file = str(tmp_path / "snapshot")
        with guest(monitor) as one:
            assert monitor.run("session", "suspend", str(session(monitor).id), file).returncode == 0
            monitor.wait_idle(1)
            with guest(monitor):
                request = control_pb2.ResumeSessionRequest(file=file)
                steps = monitor.stub.ResumeSession(request, metadata=monitor.metadata)
                assert next(steps).state == STATE.MIGRATION_STATE_RUNNING
                assert monitor.stop() == 0
            with pytest.raises((EOFError, ConnectionError)):
                one.echo(b"gone")
