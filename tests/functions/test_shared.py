"""Several function servers with one store: what one has deployed all have, and one that dies is replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.store.etcd import EtcdStore
from gpuferry.monitor.store.interface import Store

from tests.helpers.monitor import monitor
from tests.helpers.running import real_gpu
from tests.registry.etcd import Etcd, etcd

from .serving import Server, serving, until
from .test_cuda import CUDA

SAYS = "def handle(request):\n    return {!r}\n"


@pytest.fixture(scope="module")
def member() -> Iterator[Etcd]:
    with etcd(1) as found:
        yield found


@pytest.fixture
def cluster(member: Etcd) -> Iterator[Etcd]:
    """Empty again after each test: a worker that takes over from others runs them in any order."""
    yield member
    asyncio.run(_emptied(member))


async def _emptied(cluster: Etcd) -> None:
    store: Store = EtcdStore(cluster.addresses)
    try:
        for key, entry in (await store.read("")).items():
            await store.swap(key, None, entry.version)
    finally:
        await store.close()


@contextmanager
def sharing(cluster: Etcd, *options: str, **settings: Any) -> Iterator[Server]:
    driver = () if "environment" in settings else ("--driver", "none")
    with serving("--store", cluster.store, "--node", "gpu-a", *driver, *options, **settings) as server:
        yield server


def kept(cluster: Etcd, prefix: str) -> dict[str, bytes]:
    """Keys below the prefix in the store, with their values."""

    async def read() -> dict[str, bytes]:
        store: Store = EtcdStore(cluster.addresses)
        try:
            return {key: entry.value for key, entry in (await store.read(prefix)).items()}
        finally:
            await store.close()

    return asyncio.run(read())


def write(cluster: Etcd, key: str, value: bytes) -> None:
    """Into the store, as another program."""

    async def put() -> None:
        store = EtcdStore(cluster.addresses)
        try:
            await store.put(key, value)
        finally:
            await store.close()

    asyncio.run(put())


def names(server: Server) -> list[str]:
    return [one["name"] for one in json.loads(server.system("GET", "functions").body)["functions"]]


@pytest.mark.system
def test_what_one_deploys_all_have_and_who_dies_is_replaced(cluster: Etcd) -> None:
    with sharing(cluster) as one, sharing(cluster) as other:
        one.deploy("told", SAYS.format("first"))
        until(lambda: names(other), ["told"].__eq__)
        assert other.invoke("told").body == b"first"
        assert other.show("told")["revision"] == 1
        # The next revision, at the other one; the first follows, and its replicas are of it.
        other.deploy("told", SAYS.format("second"))
        one.becomes("told", lambda shown: shown["revision"] == 2)
        until(lambda: one.invoke("told").body, b"second".__eq__)
        one.process.kill()
        one.process.wait()
        assert other.invoke("told").body == b"second"
        until(lambda: sorted(kept(cluster, "model/told/")), ["model/told/infer", "model/told/load"].__eq__)
        with sharing(cluster) as third:  # without a state of its own
            assert names(third) == ["told"]
            assert third.invoke("told").body == b"second"
            assert third.system("DELETE", "functions/told").status == 204
            until(lambda: names(other), [].__eq__)
            assert other.invoke("told").status == 404
    assert kept(cluster, "function/") == {}


@pytest.mark.system
def test_two_who_deploy_at_once_do_not_both_win(cluster: Etcd) -> None:
    with sharing(cluster) as one, sharing(cluster) as other:
        from .serving import Asked

        def put(server: Server, text: str) -> Any:
            said = {"source": SAYS.format(text), "folder": "/"}
            return server.system("PUT", "functions/both", said)

        asked = [Asked(lambda s=server, t=text: put(s, t)) for server, text in ((one, "one"), (other, "two"))]  # type: ignore[misc]
        statuses = sorted(each.got().status for each in asked)
        assert statuses in ([200, 200], [200, 400])  # one after the other, or one of them
        revision = 2 if statuses == [200, 200] else 1
        for server in (one, other):
            until(lambda s=server: names(s), lambda seen: "both" in seen)  # type: ignore[misc]
            server.becomes("both", lambda shown: shown["revision"] == revision)
        assert len({until(lambda s=server: s.invoke("both").body, bool) for server in (one, other)}) == 1  # type: ignore[misc]
        one.system("DELETE", "functions/both")


@pytest.mark.system
@pytest.mark.skipif(real_gpu(), reason="on two simulated devices")
def test_gpus_are_told_with_a_lease(cluster: Etcd) -> None:
    devices = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB", "GPUFERRY_SIM_DEVICES": "2"}
    with monitor("--pool", "1", environment=devices) as gpus:
        settings = gpus.settings() | {"GPUFERRY_CONTROL": gpus.control}
        options = ("--policy", "lalbo3", "--tokens", "1")
        with sharing(cluster, *options, environment=settings) as one:
            one.knows_gpus()
            one.deploy("model", CUDA, gpu_memory=32 << 20)
            assert one.invoke("model").body == b"1"
            name = json.loads(one.system("GET", "status").body)["server"]["name"]
            told = {f"gpu/gpu-a/{gpu}/status/{name}": b"idle" for gpu in (0, 1)}
            has, lacks = (f"gpu/gpu-a/{gpu}/lru/{name}" for gpu in (0, 1))
            two = [told | {has: b'["model"]', lacks: b"[]"}, told | {has: b"[]", lacks: b'["model"]'}]
            until(lambda: kept(cluster, "gpu/gpu-a/"), two.__contains__)  # each is told on its own
            with sharing(cluster, *options, environment=settings) as other:
                until(lambda: _others(other), [name].__eq__)
                one.process.kill()
                one.process.wait()
                until(lambda: _others(other), [].__eq__)  # its lease has ended
    until(lambda: kept(cluster, "gpu/"), {}.__eq__)


def _others(server: Server) -> list[str]:
    others: list[str] = json.loads(server.system("GET", "status").body)["server"]["others"]
    return others


@pytest.mark.parametrize(
    "record", [b'{"name": "future", "of": "tomorrow"}', b"[" * 100_000], ids=["newer", "deep"]
)
def test_what_cannot_be_read_is_left_alone(cluster: Etcd, record: bytes) -> None:
    """A newer gpuferry has written it perhaps: the function stays what it was, and nobody overwrites it."""
    with sharing(cluster) as server:
        server.deploy("future", SAYS.format("before"))
        write(cluster, "function/future", record)
        log = server.folder / "server.log"
        until(log.read_text, lambda text: "cannot be read" in text)
        assert server.invoke("future").body == b"before"
        got = server.system("PUT", "functions/future", {"source": SAYS.format("x"), "folder": "/"})
        assert (got.status, b"cannot be read" in got.body) == (400, True)
        assert server.invoke("future").body == b"before"
        assert server.system("DELETE", "functions/future").status == 204
    assert not [key for key in kept(cluster, "") if "future" in key]


@pytest.mark.system
def test_measurements_that_are_none_harm_nobody(cluster: Etcd) -> None:
    """Neither a server that runs nor one that starts, nor a deployment."""
    odd = {"abc": b"abc", "bytes": b"\xff", "nan": b"nan", "negative": b"-1"}
    with sharing(cluster) as one:
        for name, value in odd.items():
            write(cluster, f"model/{name}/load", value)
        log = one.folder / "server.log"
        until(log.read_text, lambda text: text.count("what was measured cannot be read") == len(odd))
        one.deploy("abc", SAYS.format("fine"))
        assert one.invoke("abc").body == b"fine"
        with sharing(cluster) as other:
            assert other.invoke("abc").body == b"fine"
        one.system("DELETE", "functions/abc")


@pytest.mark.system
def test_a_store_that_does_not_answer_hurts_commands_alone(tmp_path: Path) -> None:
    """Functions go on; what was refused is not there."""
    with etcd(1) as alone, sharing(alone) as server:
        server.deploy("stays", SAYS.format("here"))
        alone.members[0].kill()
        assert server.invoke("stays").body == b"here"
        got = server.system("PUT", "functions/new", {"source": SAYS.format("x"), "folder": "/"})
        assert (got.status, b"store does not answer" in got.body) == (503, True)
        assert names(server) == ["stays"]
        alone.members[0].start()
        # One that was carried out, though its answer came too late, is not carried out again.
        until(lambda: server.system("DELETE", "functions/stays").status, (204, 404).__contains__)
        assert names(server) == []


def test_servers_of_one_machine_share_a_file(tmp_path: Path) -> None:
    environment = {"GPUFERRY_STATE_DIR": str(tmp_path)}
    options = ("--store", "sqlite", "--driver", "none")
    with (
        serving(*options, environment=environment) as one,
        serving(*options, environment=environment) as other,
    ):
        one.deploy("told", SAYS.format("first"))
        until(lambda: names(other), ["told"].__eq__)
        assert other.invoke("told").body == b"first"


@pytest.mark.system
def test_what_one_server_replaces_another_may_still_start(tmp_path: Path) -> None:
    """Where the new revision does not start, the one before stays, and so does its file."""
    environment = {"GPUFERRY_STATE_DIR": str(tmp_path)}
    options = ("--store", "sqlite", "--driver", "none")
    with (
        serving(*options, environment=environment) as one,
        serving(*options, environment={**environment, "OLD_MACHINE": "1"}) as other,
    ):
        one.deploy("stays", SAYS.format("first"), idle=0.0)
        until(lambda: names(other), ["stays"].__eq__)
        new = "import os\nassert 'OLD_MACHINE' not in os.environ\n" + SAYS.format("second")
        one.deploy("stays", new, idle=0.0)
        log = other.folder / "server.log"
        until(log.read_text, lambda said: "does not start here" in said)
        other.becomes("stays", lambda shown: not shown["replicas"])
        assert one.invoke("stays").body == b"second"
        assert other.invoke("stays").body == b"first"
