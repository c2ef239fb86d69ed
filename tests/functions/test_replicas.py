"""Replicas come and go: from nothing and back, from one revision to the next, over restarts of the server."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from .serving import DEEDS, Asked, Meeting, Server, gone, serving, stop, until


def test_from_nothing_and_back(server: Server) -> None:
    server.deploy("idle", least=0, most=2, idle=0.1)
    server.becomes("idle", lambda function: not function["replicas"])
    got = server.invoke("idle", body="x")
    assert (got.body, got.headers["X-Gpuferry-Start"]) == (b"x", "cold")
    server.becomes("idle", lambda function: not function["replicas"])


def test_as_many_replicas_as_needed_and_allowed(server: Server) -> None:
    server.deploy("many", most=2)
    held = [Meeting(server, "many") for _ in range(2)]
    pids = {one.come() for one in held}
    assert len(pids) == 2
    third = Asked(lambda: server.invoke("many", "pid"))
    server.becomes("many", lambda function: function["waiting"] == 1)
    assert len(server.show("many")["replicas"]) == 2
    for one in held:
        one.go("done")
        assert one.asked.got().body == b"done"
    assert int(third.got().body) in pids


@pytest.mark.system
def test_those_that_ought_to_be_there_are_replaced(server: Server) -> None:
    server.deploy("kept", least=2, most=2, idle=0.0)
    ready = server.becomes("kept", lambda function: len(idle(function)) == 2)
    pids = {replica["pid"] for replica in ready["replicas"]}
    os.kill(min(pids), signal.SIGKILL)
    server.becomes(
        "kept", lambda function: len(idle(function)) == 2 and {r["pid"] for r in function["replicas"]} != pids
    )


def idle(function: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return [replica for replica in function["replicas"] if replica["state"] == "idle"]


@pytest.mark.system
def test_the_next_revision_takes_over_while_the_one_before_still_answers(server: Server) -> None:
    server.deploy("rolling", most=1)
    old = Meeting(server, "rolling")
    pid = old.come()
    server.deploy("rolling", "def handle(request):\n    return 'new'\n", most=1)
    assert server.show("rolling")["revision"] == 2
    waits = Asked(lambda: server.invoke("rolling"))  # for the one place that there may be
    old.go("old")
    assert old.asked.got().body == b"old"
    assert waits.got().body == b"new"
    until(lambda: gone(pid), bool)
    folders = [folder.name for folder in (server.folder / "state/functions/rolling").glob("revision-*")]
    assert folders == ["revision-2"]


def test_what_waits_for_a_removed_function_is_refused_and_what_runs_ends(server: Server) -> None:
    server.deploy("removed", most=1)
    first = Meeting(server, "removed")
    pid = first.come()
    second = Asked(lambda: server.invoke("removed"))
    server.becomes("removed", lambda function: function["waiting"] == 1)
    assert server.system("DELETE", "functions/removed").status == 204
    got = second.got()
    assert (got.status, got.ran, got.error) == (404, "no", "removed")
    assert server.invoke("removed").error == "not_found"
    server.deploy("removed", "def handle(request):\n    return 'another'\n")
    assert server.invoke("removed").body == b"another"
    first.go("first")
    assert first.asked.got().body == b"first"
    until(lambda: gone(pid), bool)
    assert server.invoke("removed").body == b"another"


def test_a_server_that_stops_lets_accepted_invocations_end_and_the_next_one_knows_all() -> None:
    with serving("--driver", "none") as first:
        first.deploy("lasting", most=1)
        held = Meeting(first, "lasting")
        pid = held.come()
        waits = Asked(lambda: first.invoke("lasting", body="waited"))
        first.becomes("lasting", lambda function: function["waiting"] == 1)
        first.process.send_signal(signal.SIGTERM)
        until(lambda: first.ask("GET", "/readyz").status, lambda status: status == 503)
        got = first.invoke("lasting")
        assert (got.status, got.ran, got.error) == (503, "no", "shutting_down")
        held.go("held")
        assert held.asked.got().body == b"held"
        assert waits.got().body == b"waited"
        assert first.process.wait(120) == 0
        assert gone(pid)
        with serving("--driver", "none", folder=first.folder) as second:
            assert second.invoke("lasting", body="x").body == b"x"
            # Killed as it is, it leaves no process behind, whatever that does.
            endless = Asked(lambda: second.invoke("lasting", "loop"))
            busy = second.becomes("lasting", lambda function: function["running"] == 1)
            second.process.kill()
            second.process.wait()
            until(lambda: gone(busy["replicas"][0]["pid"]), bool)
            assert isinstance(endless.failure(), ConnectionError)
        with serving("--driver", "none", "--grace", "0", folder=first.folder) as third:
            assert third.invoke("lasting", body="x").body == b"x"
            longer = Meeting(third, "lasting")
            longer.come()
            stop(third.process)
            ended = longer.asked.got()
            assert (ended.status, ended.ran, ended.error) == (503, "yes", "shutting_down")


def test_a_server_that_stops_lets_answers_be_read_to_their_end() -> None:
    """What has run is of no use to a caller who gets half of its answer."""
    with serving("--driver", "none", "--grace", "120") as server:
        server.deploy("large", most=1)
        caller = server.connection()
        caller.request("POST", f"/function/large?do=large&size={7 << 20}")
        server.becomes("large", lambda shown: shown["invocations"]["ok"] == 1)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(3)
        assert len(caller.getresponse().read()) == 7 << 20
        caller.close()
        assert server.process.wait(60) == 0


@pytest.mark.system
@pytest.mark.parametrize("record", ["{", "[" * 100_000], ids=["half", "deep"])
def test_a_record_that_cannot_be_read_harms_no_other(record: str) -> None:
    with serving("--driver", "none") as first:
        first.deploy("good", DEEDS)
        first.deploy("bad", DEEDS)
        stop(first.process)
        (first.folder / "state/functions/bad/deployment.json").write_text(record)
        with serving("--driver", "none", folder=first.folder) as second:
            assert second.invoke("good", body="x").body == b"x"
            assert second.invoke("bad").error == "not_found"
