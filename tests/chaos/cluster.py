"""Three registry replicas on three members of etcd, and a clerk who writes into them all the time."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from gpuferry.monitor.cluster.registry.client import UNREACHABLE, CallFailed, answers
from gpuferry.monitor.cluster.registry.signing import Caller
from gpuferry.specs._generated import registry_pb2

from tests.chaos.server import TOKEN
from tests.monitor import harness
from tests.registry.etcd import Etcd, etcd
from tests.registry.running import Registry, registry

REPLICAS = 3
CALL_SECONDS = 15.0  # longer than a registry waits for etcd
ANSWER_SECONDS = 60.0  # by then some replica has answered


class Cluster:
    """All of it, and how a GPU server joins it."""

    def __init__(self, store: Etcd, replicas: list[Registry], key_file: Path) -> None:
        self.store = store
        self.replicas = replicas
        self._key = key_file.read_text().encode()
        where = ",".join(replica.control for replica in replicas)
        self.join = ("--registry", where, "--cluster-key-file", str(key_file))

    def ask(self, first: int, method: str, request: Any) -> Any:
        """The answer of the first replica that has one, from this one on. What was asked may happen twice."""
        ring = itertools.cycle(self.replicas[first:] + self.replicas[:first])

        def answered() -> Any:
            replica = next(ring).control
            with grpc.insecure_channel(replica) as channel:
                try:
                    (answer,) = answers(channel, Caller(self._key), replica, method, request, CALL_SECONDS)
                    return answer
                except CallFailed as error:
                    if error.code in UNREACHABLE:
                        return None
                    raise

        return harness.wait_until(answered, f"an answer to {method}", ANSWER_SECONDS)

    def logs(self) -> Iterator[Path]:
        """Of the replicas."""
        return (replica.log for replica in self.replicas)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Nothing of it is left afterwards."""
    key, token = folder / "cluster.key", folder / "token"
    for path, secret in ((key, secrets.token_hex(32)), (token, TOKEN)):
        path.write_text(secret)
        path.chmod(0o600)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(etcd(3))
        options = ("--store", store.store, "--cluster-key-file", str(key), "--token-file", str(token))
        replicas = [stack.enter_context(registry(*options, "--max-wait", "20")) for _ in range(REPLICAS)]
        yield Cluster(store, replicas, key)


class Clerk:
    """Registers, drains and removes GPU servers, and remembers what was acknowledged."""

    def __init__(self, cluster: Cluster, seed: int, over: threading.Event) -> None:
        self._cluster = cluster
        self._chance = random.Random(f"clerk of {seed}")
        self._over = over
        self.registered: dict[str, bool] = {}  # and whether it is drained
        self.acknowledged = 0

    def work(self) -> None:
        """Until it is over."""
        try:
            for number in itertools.count():
                if self._over.wait(self._chance.uniform(0.1, 1.0)):
                    return
                self.register(f"gpu-{number}:7700")
                if self._chance.random() < 0.5:
                    self._drain(f"gpu-{self._chance.randint(0, number)}:7700")
                drained = sorted(address for address, drained in self.registered.items() if drained)
                if len(drained) > 3:
                    self._remove(self._chance.choice(drained))
        finally:
            self._over.set()

    def register(self, address: str) -> None:
        self._do("Register", registry_pb2.RegisterRequest(address=address))
        self.registered[address] = False

    def _drain(self, address: str) -> None:
        if address not in self.registered:
            return
        self._do("Drain", registry_pb2.ServerRequest(address=address))
        self.registered[address] = True

    def _remove(self, address: str) -> None:
        try:
            self._do("Remove", registry_pb2.ServerRequest(address=address))
        except CallFailed as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:  # as it is if the first answer was lost
                raise
        del self.registered[address]

    def _do(self, method: str, request: Any) -> None:
        self._cluster.ask(self._chance.randrange(REPLICAS), method, request)
        self.acknowledged += 1
