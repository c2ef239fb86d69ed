"""A tenant of a cluster: limited over all servers, known to each, billed in one account."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from gpuferry.monitor.door.handshake import Reason
from gpuferry.specs._generated import control_pb2

from tests.monitor import harness
from tests.tenants.stage import as_tenant

from .guest import Guest, Identity, Refused, Request, ask
from .running import PATIENT, Registry, registry
from .test_redirect import POOL, member


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Registry, list[harness.Monitor]]]:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(registry("--lease", "6", "--max-wait", "5", constants=PATIENT))
        monitors = [stack.enter_context(member(running)) for _ in range(2)]
        for monitor in monitors:
            running.register(monitor.tcp)
        for monitor in monitors:
            monitor.wait_idle(POOL)
            running.wait_for(monitor.tcp, alive=True)
        yield running, monitors


@pytest.mark.system
def test_limits_tokens_and_usage_of_a_cluster(cluster: tuple[Registry, list[harness.Monitor]]) -> None:
    running, monitors = cluster
    made = running.run("token", "create", "acme", "--registry", running.control)
    token = made.stdout.strip()
    limited = running.run("tenant", "set", "acme", "--sessions", "2", "--registry", running.control)
    assert (limited.returncode, limited.stdout) == (0, "acme: sessions 2\n")
    for monitor in monitors:  # with their next heartbeats
        harness.wait_until(lambda: '"sessions": 2' in _shown(monitor), "the limit")  # noqa: B023
    with Guest(running.address, token) as one, Guest(running.address, token) as two:
        assert {one.server, two.server} == {monitor.tcp for monitor in monitors}
        with pytest.raises(Refused) as caught:
            ask(running.address, Identity(token), Request())
        assert caught.value.reason == Reason.NO_CAPACITY
        assert "tenant acme has 2 of 2 sessions in the cluster (limit sessions)" in caught.value.text
        for monitor in monitors:  # each knows the token, though none has it
            reply = monitor.stub.Status(
                control_pb2.StatusRequest(), metadata=as_tenant(token), timeout=harness.DEADLINE
            )
            assert [session.tenant for session in reply.sessions] == ["acme"]

    def billed() -> bool:
        listed = running.run("tenant", "usage", "acme", "--json", "--registry", running.control)
        (acme,) = json.loads(listed.stdout)["usage"]
        return bool(acme["sessions"] == 2 and acme["gpu_seconds"] > 0)

    harness.wait_until(billed, "one account")
    told = [report for server in running.servers().values() for report in server.load.tenants]
    assert "acme" in {report.tenant for report in told}
    assert not any(report.HasField("limits") or report.HasField("set") for report in told)


def _shown(monitor: harness.Monitor) -> str:
    return monitor.run("tenant", "show", "acme", "--json").stdout
