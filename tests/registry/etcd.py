"""A real etcd cluster on loopback, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from gpuferry.specs._generated import etcd_pb2, etcd_pb2_grpc

from tests.helpers.certificates import Certificates
from tests.helpers.ports import lasting_ports
from tests.monitor.harness import wait_until

SECONDS = 60.0


class Member:
    """One etcd process; it can be killed and started again with what it had."""

    def __init__(
        self, folder: Path, name: str, client: int, peer: int, cluster: str, flags: tuple[str, ...] = ()
    ) -> None:
        self.address = f"127.0.0.1:{client}"
        url = f"{'https' if flags else 'http'}://{self.address}"
        self._log = folder / f"{name}.log"
        self._command = [
            "etcd",
            *("--name", name, "--data-dir", str(folder / name)),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000"),
            *flags,
        ]
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def leads(self) -> bool:
        """Whether it is the leader; False if it does not answer."""
        with grpc.insecure_channel(self.address) as channel:
            try:
                stub = etcd_pb2_grpc.MaintenanceStub(channel)
                status = stub.Status(etcd_pb2.StatusRequest(), timeout=2)
            except grpc.RpcError:
                return False
        return bool(status.leader and status.leader == status.header.member_id)


class Etcd:
    """The members."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        clients, peers = ports[::2], ports[1::2]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        self.members = [
            Member(folder, f"m{i}", client, peer, cluster)
            for i, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]
        self.leader()

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    @property
    def store(self) -> str:
        """As `gpuferry registry --store` takes it."""
        return "etcd:" + ",".join(self.addresses)

    def leader(self) -> Member:
        """Waits for one to be elected."""
        living = [member for member in self.members if member.process.poll() is None]
        found = wait_until(lambda: [member for member in living if member.leads()], "an etcd leader", SECONDS)
        leader: Member = found[0]
        return leader

    def stop(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.kill()


@contextlib.contextmanager
def etcd(count: int) -> Iterator[Etcd]:
    """Needs Debian's etcd-server."""
    if not shutil.which("etcd"):
        pytest.skip("etcd is not installed: apt-get install etcd-server")
    with tempfile.TemporaryDirectory(prefix="gf-etcd-") as folder, lasting_ports(2 * count) as ports:
        cluster = Etcd(Path(folder), ports)
        try:
            yield cluster
        finally:
            cluster.stop()


@contextlib.contextmanager
def secured_etcd(certificates: Certificates) -> Iterator[str]:
    """One member's address. It speaks TLS, with whoever has a certificate of the same authority."""
    files = {"cert-file": "server.crt", "key-file": "server.key", "trusted-ca-file": "ca.crt"}
    flags = [word for flag, file in files.items() for word in (f"--{flag}", str(certificates.folder / file))]
    with tempfile.TemporaryDirectory(prefix="gf-etcd-") as folder, lasting_ports(2) as (client, peer):
        alone = f"m0=http://127.0.0.1:{peer}"
        cheap = ("--client-cert-auth", "--bcrypt-cost", "4")
        member = Member(Path(folder), "m0", client, peer, alone, (*flags, *cheap))
        try:
            yield member.address
        finally:
            member.kill()
