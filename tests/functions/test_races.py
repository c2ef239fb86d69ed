"""What comes between two steps of the server, at named points."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.points import Points

from .serving import Asked, Meeting, Server, gone, serving, until

INVOKES = "gpuferry.monitor.functions.replica:PythonReplica.invoke"
STARTED = "gpuferry.monitor.functions.replica:PythonReplica._begin!"
KEEPS = "gpuferry.monitor.functions.shelf:Shelf.put"
REMOVES = "gpuferry.monitor.functions.shelf:Shelf.remove"
ENDS = "gpuferry.monitor.functions.replica:PythonReplica.end"
TICKED = "gpuferry.monitor.functions.catalogue:Catalogue._have_least!"
COUNTS = "def handle(request):\n    with open(request.text(), 'a') as counted: counted.write('x')\n"


@pytest.fixture(scope="module")
def points() -> Iterator[Points]:
    with Points(INVOKES, STARTED, KEEPS, REMOVES) as points:
        yield points


@pytest.fixture(scope="module")
def pointed(points: Points) -> Iterator[Server]:
    command = Points.command("gpuferry.monitor.cli.main")
    with serving("--driver", "none", command=command, environment=points.environment) as server:
        yield server


def test_an_invocation_whose_replica_dies_before_it_begins_is_run_elsewhere_once(
    pointed: Server, points: Points
) -> None:
    pointed.deploy("dies", COUNTS, most=1)
    pid = pointed.show("dies")["replicas"][0]["pid"]
    counted = pointed.folder / "counted"
    counted.touch()
    with points.hold(INVOKES) as held:
        asked = Asked(lambda: pointed.invoke("dies", body=str(counted)))
        held.wait()
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid), bool)
    assert asked.got().status == 204
    assert counted.read_text() == "x"


def test_one_whose_replicas_all_die_before_it_begins_has_not_run(pointed: Server, points: Points) -> None:
    pointed.deploy("cursed", COUNTS, most=1)
    counted = pointed.folder / "cursed"
    counted.touch()
    held = [points.at(INVOKES) for _ in range(3)]
    asked = Asked(lambda: pointed.invoke("cursed", body=str(counted)))
    for one in held:
        one.wait()
        pid = pointed.show("cursed")["replicas"][0]["pid"]
        os.kill(pid, signal.SIGKILL)
        until(partial(gone, pid), bool)
        one.go()
    got = asked.got()
    assert (got.status, got.ran, got.error) == (502, "no", "crashed")
    assert counted.read_text() == ""


def test_a_function_that_is_removed_while_a_replica_starts(pointed: Server, points: Points) -> None:
    pointed.deploy("starting", most=1, idle=0.0)
    pointed.becomes("starting", lambda function: not function["replicas"])
    with points.hold(STARTED) as held:
        asked = Asked(lambda: pointed.invoke("starting", body="x"))
        held.wait()
        pid = pointed.show("starting")["replicas"][0]["pid"]
        assert pointed.system("DELETE", "functions/starting").status == 204
    got = asked.got()
    assert (got.status, got.ran) in {(404, "no"), (502, "no")}
    until(lambda: gone(pid), bool)


def test_a_revision_that_comes_while_a_replica_of_the_one_before_starts(
    pointed: Server, points: Points
) -> None:
    pointed.deploy("replaced", most=1, idle=0.0)
    pointed.becomes("replaced", lambda function: not function["replicas"])
    with points.hold(STARTED) as held:
        asked = Asked(lambda: pointed.invoke("replaced", body="x"))
        held.wait()
        pointed.deploy("replaced", "def handle(request):\n    return 'new'\n", most=1)
    assert asked.got().body == b"new"


@pytest.mark.system
def test_a_roll_out_makes_no_more_replicas_than_there_may_be(pointed: Server, points: Points) -> None:
    """Not even where invocations start some while the roll-out starts one."""
    pointed.deploy("counted-out", most=2)
    old = [Meeting(pointed, "counted-out") for _ in "ab"]
    for one in old:
        one.come()
    first, second = points.at(STARTED), points.at(STARTED)
    deployed = Asked(lambda: pointed.deploy("counted-out", most=2))
    first.wait()
    first.go()
    second.wait()  # in place of one of the old ones
    for one in old:
        one.go("old")
    new = [Meeting(pointed, "counted-out") for _ in "cd"]
    for one in new:
        one.come()
    second.go()
    deployed.got()
    states = [one["state"] for one in pointed.show("counted-out")["replicas"]]
    assert sum(state in ("idle", "busy") for state in states) == 2, states
    for one in new:
        one.go("new")
        assert one.asked.got().body == b"new"


def test_a_deployment_that_cannot_be_kept_is_none(pointed: Server, points: Points) -> None:
    pointed.deploy("unkept", most=1)
    points.fail(KEEPS, "raise")
    got = pointed.system("PUT", "functions/unkept", {"source": "def handle(r): return 'new'", "folder": "/"})
    assert got.status == 507
    assert pointed.invoke("unkept", body="as ever").body == b"as ever"
    assert pointed.show("unkept")["revision"] == 1


def test_a_function_whose_record_cannot_be_removed_stays_whole(pointed: Server, points: Points) -> None:
    """Where the folder has become read-only: it was gone, but its replicas ran on."""
    pointed.deploy("unremoved", most=1)
    points.fail(REMOVES, "raise")
    got = pointed.system("DELETE", "functions/unremoved")
    assert (got.status, got.body[:20]) == (507, b"it cannot be removed")
    assert pointed.invoke("unremoved", body="as ever").body == b"as ever"
    assert pointed.system("DELETE", "functions/unremoved").status == 204
    assert pointed.invoke("unremoved").status == 404


def test_a_caller_who_leaves_while_a_replica_starts_for_it(pointed: Server, points: Points) -> None:
    pointed.deploy("left", most=1, idle=0.0)
    pointed.becomes("left", lambda function: not function["replicas"])
    with points.hold(STARTED) as held:
        connection = pointed.connection()
        connection.request("POST", "/function/left", b"x")
        held.wait()
        connection.close()
    pointed.becomes("left", lambda function: function["running"] == 0)
    assert pointed.invoke("left", body="another").body == b"another"
    assert pointed.show("left")["invocations"]["ok"] == 1


def results(server: Server, name: str) -> dict[str, float]:
    """How the function's invocations ended, and how many did so."""
    text = server.ask("GET", "/metrics", Authorization=f"Bearer {server.token}").body.decode()
    found = re.findall(rf'_invocations_total{{function="{name}",result="(\w+)"}} (.*)', text)
    return {result: float(number) for result, number in found}


def test_one_that_is_to_run_again_waits_no_longer_than_it_may(pointed: Server, points: Points) -> None:
    """And counts as one that has waited, also if a replica was about to start for it."""
    pointed.deploy("impatient", most=1, wait=1.5)  # before it is there that is not over
    with points.hold(STARTED) as starting:
        with points.hold(INVOKES) as held:
            asked = Asked(lambda: pointed.invoke("impatient"))
            held.wait()
            pid = pointed.show("impatient")["replicas"][0]["pid"]
            os.kill(pid, signal.SIGKILL)
            until(partial(gone, pid), bool)
        starting.wait()
        got = asked.got()
        assert (got.status, got.ran, got.error) == (504, "no", "waited")
    pointed.becomes("impatient", lambda function: function["running"] == 0)
    assert results(pointed, "impatient") == {"waited": 1}


def test_nothing_is_counted_of_a_function_that_was_removed(pointed: Server, points: Points) -> None:
    pointed.deploy("forgotten", most=1)
    assert pointed.invoke("forgotten").status == 200
    with points.hold(INVOKES) as held:
        asked = Asked(lambda: pointed.invoke("forgotten"))
        held.wait()
        assert pointed.system("DELETE", "functions/forgotten").status == 204
    assert asked.got().status == 200
    metrics = pointed.ask("GET", "/metrics", Authorization=f"Bearer {pointed.token}").body.decode()
    assert "forgotten" not in metrics


def test_a_server_that_stops_starts_no_more_replicas() -> None:
    """Not even one that ought to be there at any time, in the place of one that it has just ended."""
    command = Points.command("gpuferry.monitor.cli.main")
    with (
        Points(ENDS, TICKED) as points,
        serving("--driver", "none", command=command, environment=points.environment) as server,
    ):
        server.deploy("lasting", least=1, most=1)
        with points.hold(ENDS) as held:
            server.process.send_signal(signal.SIGTERM)
            held.wait()
            with points.hold(TICKED) as ticked:
                ticked.wait()
        assert server.process.wait(60) == 0


def test_a_server_that_stops_ends_what_is_being_deployed(tmp_path: Path) -> None:
    command = Points.command("gpuferry.monitor.cli.main")
    says = tmp_path / "pid"
    source = f"import os\nopen({str(says)!r}, 'w').write(str(os.getpid()))\ndef handle(request): pass\n"
    with (
        Points(STARTED) as points,
        serving("--driver", "none", command=command, environment=points.environment) as server,
    ):
        with points.hold(STARTED) as held:
            asked = Asked(lambda: server.system("PUT", "functions/new", {"source": source, "folder": "/"}))
            held.wait()
            server.process.send_signal(signal.SIGTERM)
            until(lambda: gone(int(says.read_text())), bool)
        assert server.process.wait(60) == 0
        assert asked.got().status == 503
