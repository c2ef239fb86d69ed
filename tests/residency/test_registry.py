"""Two GPU servers of one GPU each, which promise it twice, behind a registry that knows what is where."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.migration.gate import attempts
from tests.registry.running import Registry, registry
from tests.residency.lodgers import MIB, Lodger, Operator, lodgers

DEVICE = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB"}
OPTIONS = ("--pool", "2", "--oversubscribe", "2", "--away-memory", "128MiB")


class Cluster:
    """Both servers, with what a lodger needs to come by way of the registry."""

    def __init__(self, running: Registry, servers: list[Monitor]) -> None:
        self.registry = running
        self.servers = {server.tcp: server for server in servers}
        self.names = sorted(self.servers)

    def settings(self) -> dict[str, str]:
        some = next(iter(self.servers.values()))
        return some.settings() | {
            "GPUFERRY_MONITOR": self.registry.address,
            "GPUFERRY_TOKEN": self.registry.token,
        }

    def listed(self, *arguments: str) -> Any:
        done = self.registry.run("server", *arguments, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)

    def until(self, address: str, **wanted: int) -> None:
        """Until the registry knows this of the server's GPU."""
        for _ in attempts():
            (device,) = self.listed("show", address)["devices"]
            if wanted.items() <= device.items():
                return
        raise AssertionError((wanted, device))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(registry())
        joined = ("--registry", running.control, "--cluster-key-file", running.key_file, "--http", "none")
        server = functools.partial(monitor, *OPTIONS, *joined, environment=DEVICE, in_clear=True)
        servers = [stack.enter_context(server()) for _ in range(2)]
        for each in servers:
            running.register(each.tcp)
            running.wait_for(each.tcp, alive=True, idle=2)
        yield Cluster(running, servers)


@pytest.mark.system
def test_the_registry_knows_where_memory_is(cluster: Cluster) -> None:
    """A program goes where nobody has to leave for it; listings show what is resident, and what is away."""
    one, other = cluster.names
    function = {"GPUFERRY_FUNCTION": "resnet"}
    with contextlib.ExitStack() as stack:
        (first,) = stack.enter_context(lodgers(cluster, [64 * MIB]))  # type: ignore[arg-type]
        first.ready()
        cluster.until(one, memory=128 * MIB, memory_resident=64 * MIB, memory_away=0)
        second = Lodger(cluster, 96 * MIB, **function)  # type: ignore[arg-type]
        stack.callback(second.process.communicate)
        stack.callback(second.process.kill)
        second.ready()
        cluster.until(other, memory_resident=96 * MIB, memory_idle=96 * MIB, memory_away=0)
        operator = stack.enter_context(contextlib.closing(Operator(cluster.servers[other])))
        operator.evict(operator.session().id)
        cluster.until(other, memory_resident=0, memory_idle=0, memory_away=96 * MIB)
        assert cluster.listed("show", other)["away_memory_left"] == 32 * MIB
        (found,) = cluster.listed("programs", "--function", "resnet")["programs"]
        assert (found["server"], found["resident"], found["away"]) == (other, 0, 96 * MIB)
        assert len(cluster.listed("programs")["programs"]) == 2
        shown = cluster.registry.run("server", "programs").stdout
        assert "resnet" in shown
        assert "96 MiB" in shown
        for program in (first, second):
            program.finish()
