"""A real etcd that asks for certificates, users and passwords, with certificates of `gpuferry tls`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from gpuferry.monitor.cluster.registry.config import RegistryOptions
from gpuferry.monitor.cluster.registry.storage import store_of
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.store.access import access_of
from gpuferry.monitor.store.etcd import EtcdStore
from gpuferry.monitor.store.interface import StoreError
from gpuferry.specs._generated import etcd_pb2

from tests.helpers.certificates import Certificates
from tests.helpers.tokens import token_of
from tests.monitor.harness import DEADLINE
from tests.registry.etcd import secured_etcd

PASSWORD = token_of("etcd")
PREFIX = "/gpus/"


def _field(number: int, content: bytes | int) -> bytes:
    """A field of a protobuf message; of what is short."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


class Operator:
    """Says to etcd what its operator would."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def say(self, method: str, *fields: bytes, service: str = "Auth", token: str = "") -> None:
        call = self._channel.unary_unary(f"/etcdserverpb.{service}/{method}", None, None)
        metadata = (("token", token),) if token else ()
        call(b"".join(fields), timeout=DEADLINE, metadata=metadata, wait_for_ready=True)

    def set_up(self) -> None:
        """Root, and a user who may read and write below the prefix alone."""
        self.say("RoleAdd", _field(1, b"root"))
        for user in (b"root", b"registry"):
            self.say("UserAdd", _field(1, user), _field(2, PASSWORD.encode()))
        self.say("UserGrantRole", _field(1, b"root"), _field(2, b"root"))
        self.say("RoleAdd", _field(1, b"gpus"))
        end = PREFIX[:-1].encode() + b"0"
        below = _field(1, 2) + _field(2, PREFIX.encode()) + _field(3, end)
        self.say("RoleGrantPermission", _field(1, b"gpus"), _field(2, below))
        self.say("UserGrantRole", _field(1, b"registry"), _field(2, b"gpus"))
        self.say("AuthEnable")

    def change_users(self) -> None:
        """Whereupon etcd takes no token of before."""
        request = etcd_pb2.AuthenticateRequest(name="root", password=PASSWORD).SerializeToString()
        login = self._channel.unary_unary("/etcdserverpb.Auth/Authenticate", None, None)
        token = etcd_pb2.AuthenticateResponse.FromString(login(request, timeout=DEADLINE)).token
        self.say("UserAdd", _field(1, b"another"), _field(2, PASSWORD.encode()), token=token)


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[tuple[str, Operator]]:
    with secured_etcd(certificates) as address:
        credentials = certificates.identity().channel_credentials()
        with grpc.secure_channel(address, credentials) as channel:
            operator = Operator(channel)
            operator.set_up()
            yield address, operator


def options(certificates: Certificates, address: str, password_file: Path) -> RegistryOptions:
    """As `gpuferry registry` is told."""
    password_file.write_text(PASSWORD + "\n")
    folder = certificates.folder
    return RegistryOptions(
        store=f"etcd:{address}",
        etcd_ca=str(folder / "ca.crt"),
        etcd_cert=str(folder / "client.crt"),
        etcd_key=str(folder / "client.key"),
        etcd_user="registry",
        etcd_password_file=str(password_file),
        etcd_prefix=PREFIX,
    )


def test_everything_goes_as_the_user_and_below_the_prefix(
    secured: tuple[str, Operator], certificates: Certificates, tmp_path: Path
) -> None:
    """Also when etcd does not take the token any more."""
    address, operator = secured

    async def main() -> None:
        store = store_of(options(certificates, address, tmp_path / "password"))
        watch = store.watch("t/")
        assert await anext(watch) == {}
        await store.put("t/a", b"1")
        assert await anext(watch) == {"t/a": b"1"}
        await asyncio.to_thread(operator.change_users)
        await store.put("t/a", b"2", 60.0)
        assert await anext(watch) == {"t/a": b"2"}
        entry = await store.get("t/a")
        assert entry
        assert await store.swap("t/a", None, entry.version)
        assert await store.read("t/") == {}
        await watch.aclose()  # type: ignore[attr-defined]
        await store.close()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password": "wrong"}, "authentication failed"),
        ({"user": ""}, "permission denied"),
        ({"root": "/elsewhere/"}, "permission denied"),
        ({"certificate": None, "key": None}, "UNAVAILABLE"),
        ({"ca": None}, "UNAVAILABLE"),
        ({"ca": Path("/no/such/file")}, "No such file"),
    ],
)
def test_who_is_refused(
    secured: tuple[str, Operator],
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
    words: str,
) -> None:
    monkeypatch.setattr("gpuferry.monitor.store.etcd.PATIENCE_SECONDS", 0.0)  # asked once,
    monkeypatch.setattr("gpuferry.monitor.store.etcd.CALL_SECONDS", DEADLINE)  # and heard however late
    monkeypatch.setattr("gpuferry.monitor.store.etcd_access.LOGIN_SECONDS", DEADLINE)
    access = access_of(options(certificates, secured[0], tmp_path / "password"))
    access = dataclasses.replace(access, **change)  # type: ignore[arg-type]

    async def main() -> None:
        store = EtcdStore([secured[0]], access)
        try:
            await store.put("t/a", b"1")
        finally:
            await store.close()

    with pytest.raises(StoreError, match=words) as caught:
        asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert PASSWORD not in str(caught.value)


def test_new_certificates_need_no_restart(
    secured: tuple[str, Operator],
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were read once: when etcd wanted the next ones, the store failed until somebody restarted it."""
    address, _ = secured
    given = access_of(options(certificates, address, tmp_path / "password"))
    strange = Certificates.make(tmp_path / "strange")
    mine = {name: tmp_path / name for name in ("client.crt", "client.key")}

    def bring(source: Certificates) -> None:
        for name, path in mine.items():
            fresh = path.with_suffix(".new")
            fresh.write_bytes((source.folder / name).read_bytes())
            fresh.replace(path)

    bring(strange)
    access = dataclasses.replace(given, certificate=mine["client.crt"], key=mine["client.key"])
    monkeypatch.setattr("gpuferry.monitor.store.etcd.CALL_SECONDS", DEADLINE)
    monkeypatch.setattr("gpuferry.monitor.store.etcd_access.LOGIN_SECONDS", DEADLINE)

    async def main() -> None:
        store = EtcdStore([address], access)
        with monkeypatch.context() as once:
            once.setattr("gpuferry.monitor.store.etcd.PATIENCE_SECONDS", 0.0)
            with pytest.raises(StoreError, match="UNAVAILABLE"):
                await store.put("t/b", b"1")
        bring(certificates)
        monkeypatch.setattr("gpuferry.monitor.store.etcd.PATIENCE_SECONDS", DEADLINE)
        watch = store.watch("t/b")
        assert await anext(watch) == {}
        await store.put("t/b", b"1")
        assert await anext(watch) == {"t/b": b"1"}
        await watch.aclose()  # type: ignore[attr-defined]
        mine["client.key"].unlink()  # in the midst of being replaced
        store._look()
        assert await store.get("t/b")
        await store.close()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_beyond_this_machine_only_with_tls(tmp_path: Path) -> None:
    elsewhere = RegistryOptions(store="etcd:127.0.0.1:2379,10.0.0.9:2379")
    with pytest.raises(ConfigError, match=r"10\.0\.0\.9:2379 is another machine") as caught:
        store_of(elsewhere)
    assert "--etcd-ca" in caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"etcd_cert": "a"},
        {"etcd_key": "a"},
        {"etcd_cert": "a", "etcd_key": "b"},
        {"etcd_user": "a"},
        {"etcd_password_file": "a"},
        {"etcd_user": "a", "etcd_password_file": "/no/such/file"},
    ],
)
def test_settings_that_cannot_work(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        access_of(dataclasses.replace(RegistryOptions(), **changes))  # type: ignore[arg-type]


def test_a_key_that_others_can_read(certificates: Certificates, tmp_path: Path) -> None:
    given = options(certificates, "127.0.0.1:1", tmp_path / "password")
    copy = tmp_path / "client.key"
    copy.write_bytes((certificates.folder / "client.key").read_bytes())
    copy.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read"):
        access_of(dataclasses.replace(given, etcd_key=str(copy)))
