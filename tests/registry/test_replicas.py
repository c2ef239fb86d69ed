"""Three registry replicas on three etcd members: none of them is needed."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor import harness
from tests.registry.etcd import Etcd, etcd
from tests.registry.guest import Guest
from tests.registry.running import Registry, registry

REPLICAS = 3
# While etcd has no leader, a call waits as long as that takes.
ELECTIONS = {"gpuferry.monitor.store.etcd:PATIENCE_SECONDS": harness.DEADLINE}


class Cluster:
    def __init__(self, store: Etcd, replicas: list[Registry], monitor: harness.Monitor) -> None:
        self.store = store
        self.replicas = replicas
        self.monitor = monitor

    @property
    def living(self) -> list[Registry]:
        return [replica for replica in self.replicas if replica.process.poll() is None]

    def check(self, expected: dict[str, str]) -> None:
        """Every replica knows the same servers, and sends guests to the one that is up."""
        for replica in self.living:
            found = {
                address: server.registration.labels[0].value for address, server in replica.servers().items()
            }
            assert found == expected
            replica.wait_for(self.monitor.tcp, alive=True)
            with Guest(replica.address, replica.token) as guest:
                assert guest.server == self.monitor.tcp
                assert guest.echo(b"x") == b"x"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    key = Path(tmp_path_factory.mktemp("key"), "cluster.key")
    key.write_text(secrets.token_hex(32))
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(etcd(3))
        options = ("--store", store.store, "--cluster-key-file", str(key), "--lease", "10")
        replicas = [stack.enter_context(registry(*options, constants=ELECTIONS)) for _ in range(REPLICAS)]
        where = ",".join(replica.control for replica in replicas)
        joined = ("--registry", where, "--cluster-key-file", str(key), "--http", "none")
        yield Cluster(store, replicas, stack.enter_context(harness.monitor("--pool", "1", *joined)))


@pytest.mark.system
def test_nothing_is_lost(cluster: Cluster) -> None:
    """Neither when the replica dies that took registrations and heartbeats, nor when etcd's leader does."""
    expected = {cluster.monitor.tcp: "a", "gpu-b:7700": "b", "gpu-c:7700": "c"}
    for address, zone in expected.items():
        cluster.replicas[0].register(address, zone=zone)
    cluster.check(expected)

    cluster.replicas[0].kill()
    cluster.check(expected)
    cluster.replicas[1].register("gpu-d:7700", zone="d")
    expected["gpu-d:7700"] = "d"

    leader = cluster.store.leader()
    leader.kill()
    cluster.replicas[2].register("gpu-e:7700", zone="e")
    expected["gpu-e:7700"] = "e"
    cluster.check(expected)

    leader.start()
    cluster.replicas[0].start()
    cluster.check(expected)
    drained = cluster.replicas[0].on("Drain", "gpu-e:7700")
    assert drained.registration.drained
    cluster.replicas[1].on("Remove", "gpu-e:7700")
    del expected["gpu-e:7700"]
    cluster.check(expected)


@pytest.mark.system
def test_tokens_are_known_to_all_replicas(cluster: Cluster) -> None:
    one, *_, other = cluster.living
    create = one.run(
        "token", "create", "acme", "--registry", one.control, GPUFERRY_CLUSTER_KEY_FILE=one.key_file
    )
    assert create.returncode == 0, create.stderr
    token = create.stdout.strip()
    one.register(cluster.monitor.tcp, zone="a")
    other.wait_for(cluster.monitor.tcp, alive=True)
    cluster.monitor.wait_idle(1)
    with Guest(other.address, token) as guest:
        assert guest.echo(b"x") == b"x"
        assert cluster.monitor.status().sessions[0].tenant == "acme"
        where = ",".join(replica.control for replica in cluster.replicas)
        arguments = ("token", "revoke", "acme", "--kill", "--yes", "--registry", where)
        revoke = other.run(*arguments, GPUFERRY_CLUSTER_KEY_FILE=one.key_file)
        assert revoke.returncode == 0, revoke.stderr
        assert guest.connection.recv(1) == b""  # its session ends with the next heartbeat


def test_replicas_must_share_a_key(cluster: Cluster) -> None:
    result = cluster.replicas[1].run("registry", "--store", cluster.store.store)
    assert result.returncode == 1
    assert "cluster key" in result.stderr


@pytest.mark.parametrize("store", ["etcd:", "redis:localhost:1", "etcd", "etcd:a:1,,b:1"])
def test_a_store_that_is_none(cluster: Cluster, store: str) -> None:
    result = cluster.replicas[1].run("registry", "--store", store)
    assert result.returncode == 2
    assert "--store: write sqlite" in result.stderr
