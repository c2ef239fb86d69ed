"""Tenants in a cluster: limits that all servers know, sessions counted over all, one account of usage."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.cluster.registry import redirect
from gpuferry.monitor.cluster.registry.accounts import ClusterUsage, follow_limits
from gpuferry.monitor.cluster.registry.choose import Wish
from gpuferry.monitor.cluster.registry.clocks import Clocks
from gpuferry.monitor.cluster.registry.directory import Directory
from gpuferry.monitor.cluster.registry.redirect import Redirector, Sent
from gpuferry.monitor.cluster.registry.service import RegistryService
from gpuferry.monitor.door.handshake import CudaError, Hello, Refusal
from gpuferry.monitor.door.tokens.book import TokenBook
from gpuferry.monitor.settings.limits import Limits
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.monitor.tenants.book import LimitBook
from gpuferry.monitor.tenants.messages import only_newer
from gpuferry.monitor.tenants.tenancy import Source, Tenancy
from gpuferry.specs._generated import registry_pb2, tenants_pb2


def usage(tenant: str, sessions: int, day: str = "") -> tenants_pb2.Usage:
    return tenants_pb2.Usage(tenant=tenant, sessions=sessions, wall_seconds=2.0 * sessions, day=day)


def server(address: str, tenant: str = "acme", used: int = 0, **has: int) -> registry_pb2.Server:
    report = tenants_pb2.Report(
        tenant=tenant, usage=usage(tenant, used), days=[usage(tenant, used, "2026-11-22")]
    )
    for name, value in has.items():
        setattr(report, name, value)
    return registry_pb2.Server(
        registration=registry_pb2.Registration(address=address),
        alive=True,
        load=registry_pb2.Load(address=address, tenants=[report]),
    )


class Aborted(Exception):
    pass


class Refusing:
    """The context of a call."""

    async def abort(self, code: object, text: str) -> None:
        raise Aborted(text)


class Servers:
    known = True
    clocks = Clocks()

    def __init__(self, *servers: registry_pb2.Server) -> None:
        self.servers = list(servers)

    def next_change(self) -> asyncio.Event:
        return asyncio.Event()


class Noting(Redirector):
    """Keeps why it turned guests away."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.refused: list[str] = []

    def turn_away(self, connection: object, peer: str, refusal: Refusal) -> None:
        self.refused.append(refusal.text)


def redirector(limits: Limits, *servers: registry_pb2.Server, max_wait: float = 1.0) -> Noting:
    tenancy = Tenancy({})
    tenancy.update(Source.CLUSTER, {"acme": limits})
    directory: Any = Servers(*servers)
    return Noting(directory, b"k" * 32, "least-loaded", max_wait, tenancy)


class Connection:
    """Nothing is said on it until it is gone."""

    gone = False

    def recv(self, size: int, flags: int) -> bytes:
        if self.gone:
            return b""
        raise BlockingIOError

    def close(self) -> None:
        pass


def guest(memory: int = 0, tenant: str = "acme") -> Any:
    class Guest:
        hello = Hello(b"", 1, memory, tenant, "", "p")
        peer = "unix"

        def __init__(self) -> None:
            self.connection = Connection()

    return Guest()


def test_sessions_count_over_all_servers_and_those_on_their_way() -> None:
    made = redirector(Limits(sessions=4), server("a:1", sessions=2), server("b:1", waiting=1))
    assert made._why_not(guest()) == ""
    made._sent[b"1"] = Sent("a:1", b"", 1, "acme", Wish(0))
    assert made._why_not(guest()).startswith(
        "tenant acme has 4 of 4 sessions in the cluster (limit sessions)"
    )
    assert made._why_not(guest(tenant="other")) == ""
    assert "limit sessions" in made._refusal(guest()).text


def test_a_registry_that_cannot_read_its_store_yet_says_so() -> None:
    """As one that was started while etcd was away: it said that no GPU server was registered."""
    made = redirector(Limits())
    there: Any = made._directory
    there.known = False
    refusal = made._refusal(guest())
    assert "cannot read its store" in refusal.text
    assert refusal.error is CudaError.SYSTEM_NOT_READY
    there.known = True
    assert "no GPU server is registered" in made._refusal(guest()).text


def test_a_guest_that_a_heartbeat_counts_is_not_counted_twice() -> None:
    made = redirector(Limits(sessions=2), server("a:1"))
    made._sent[b"1"] = Sent("a:1", b"", 1, "acme", Wish(0))
    arrived = server("a:1", sessions=1)
    arrived.load.tickets.append(b"1")
    made._directory.servers = [arrived]
    assert made._why_not(guest()) == ""


def test_memory_counts_over_all_servers() -> None:
    made = redirector(Limits(memory=100), server("a:1", memory=40), server("b:1", memory=30))
    assert made._why_not(guest(30)) == ""
    assert "granted 70 of 100 bytes of device memory in the cluster" in made._why_not(guest(31))
    with pytest.raises(Refusal, match="101 bytes of device memory asked for") as caught:
        made._check_possible(guest(101))
    assert caught.value.error is CudaError.OUT_OF_MEMORY
    made._check_possible(guest(101, "other"))


def test_what_no_gpu_server_has_is_refused_at_once() -> None:
    """It waited for all of `--max-wait`, as if a server that has it were about to come."""
    small = server("a:1")
    small.load.devices.add(memory_grantable=100)
    small.load.accepting = True
    made = redirector(Limits(), small)
    with pytest.raises(Refusal, match="can grant 101 bytes") as caught:
        made._check_possible(guest(101))
    assert caught.value.error is CudaError.OUT_OF_MEMORY
    made._check_possible(guest(100))
    there: Any = made._directory
    there.known = False
    made._check_possible(guest(101))


async def _who_waits(made: Redirector, *tenants: str) -> str:
    """Who waits, by tenant, when these have come one after the other."""
    for tenant in tenants:
        made.arrive([guest(tenant=tenant)])
        for _ in range(20):  # steps of its task, or of one that goes
            await asyncio.sleep(0)
    return "".join(sorted(one.tenant for one in made._waiting.values()))


def test_a_crowd_of_one_tenant_leaves_places_to_wait_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of its guests, which any token can make, were all that a registry let wait."""
    monkeypatch.setattr(redirect, "WAITING_MOST", 4)

    async def main() -> None:
        made = redirector(Limits(), max_wait=120.0)
        assert await _who_waits(made, *"aaaa") == "aaaa"
        assert await _who_waits(made, "a") == "aaaa"
        assert len(made.refused) == 1
        assert await _who_waits(made, "b") == "aaab"
        assert await _who_waits(made, "b") == "aabb"
        assert await _who_waits(made, "b", "a", "c") == "abbc"
        assert all("4 guests wait already" in text for text in made.refused)
        await made.close()

    asyncio.run(main())


def test_a_guest_waits_no_longer_than_it_wants_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUFERRY_MAX_WAIT held in a GPU server's queue alone: a registry kept all as long as it likes."""
    waits: list[float] = []

    async def over_at_once(seconds: float, what: Any) -> None:
        waits.append(seconds)
        what.close()
        raise asyncio.TimeoutError

    async def main() -> None:
        made = redirector(Limits(), max_wait=10.0)
        for wanted in (0.0, 2.0, 60.0):
            one = guest()
            one.hello = one.hello._replace(max_wait=wanted)
            made.arrive([one])
        await asyncio.gather(*made._waiting)
        assert waits == [10.0, 2.0, 10.0]
        assert len(made.refused) == 3
        await made.close()

    monkeypatch.setattr(redirect, "within", over_at_once)
    asyncio.run(main())


def test_those_who_wait_ask_once_for_all_who_want_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked through all servers and tenants at each heartbeat: one tenant's thousand guests that wait
    for a label that nobody has kept a registry of twenty servers from doing anything else.
    """
    asked: Counter[str] = Counter()

    def counted(name: str) -> None:
        theirs = getattr(redirect, name)

        def count(*how: Any) -> Any:
            asked[name] += 1
            return theirs(*how)

        monkeypatch.setattr(redirect, name, count)

    async def main() -> None:
        counted("choose")
        counted("_totals")
        made = redirector(Limits(), server("a:1"), max_wait=120.0)
        assert await _who_waits(made, *["acme"] * 5) == "acme" * 5
        assert asked == {"choose": 1, "_totals": 1}
        there: Any = made._directory
        there.servers = [server("a:1", sessions=1)]
        assert await _who_waits(made, *["acme"] * 2) == "acme" * 7
        assert asked == {"choose": 2, "_totals": 2}
        await made.close()

    asyncio.run(main())


def test_who_hangs_up_while_it_waits_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood in line until its time was over, with its descriptor, and was sent to a server in its turn:
    that was as good as occupied for two heartbeats, and so was its tenant's limit.
    """
    changes: list[asyncio.Event] = []

    def next_change(_: Servers) -> asyncio.Event:
        changes.append(asyncio.Event())
        return changes[-1]

    monkeypatch.setattr(Servers, "next_change", next_change)

    async def main() -> None:
        made = redirector(Limits(), max_wait=120.0)
        guests = [guest(), guest(tenant="b")]
        made.arrive(guests)
        while len(changes) < 2:
            await asyncio.sleep(0)
        guests[0].connection.gone = True
        for change in changes[:2]:
            change.set()
        await asyncio.wait(list(made._waiting), return_when=asyncio.FIRST_COMPLETED)
        assert [one.guest for one in made._waiting.values()] == guests[1:]
        assert made.refused == []
        await made.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_defect_is_told_to_guest_and_operator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection was closed without a word, and the log had a task that nobody had asked."""

    def fails(*_: object) -> None:
        raise KeyError("nobody thought of it")

    monkeypatch.setattr(redirect, "choose", fails)

    async def main() -> None:
        made = redirector(Limits(), server("a:1"), max_wait=120.0)
        assert await _who_waits(made, "a") == ""
        assert made.refused == [redirect.DEFECT]

    asyncio.run(main())
    assert "could not be placed" in capsys.readouterr().out


def test_a_crowd_that_a_server_does_not_answer_fills_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of those that waited wrote a line, at each heartbeat."""

    async def greets(*_: object) -> bool:
        await asyncio.sleep(0)
        return False

    monkeypatch.setattr(redirect, "_greets", greets)
    monkeypatch.setattr(redirect, "choose", lambda *_: "a:1")

    async def main() -> None:
        made = redirector(Limits(), server("a:1"), max_wait=120.0)
        assert await _who_waits(made) == ""
        made.arrive([guest() for _ in range(20)])
        for _ in range(20):
            await asyncio.sleep(0)
        await made.close()

    asyncio.run(main())
    assert 1 <= capsys.readouterr().out.count("server does not answer") <= 5


def test_who_has_to_go_before_anything_was_done_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection was just closed: its program was told of a lost one, not to try again later."""
    monkeypatch.setattr(redirect, "WAITING_MOST", 2)

    async def main() -> None:
        made = redirector(Limits(), max_wait=120.0)
        made.arrive([guest(tenant=tenant) for tenant in "aab"])
        assert await _who_waits(made, "b") == "ab"
        assert len(made.refused) == 2
        await made.close()

    asyncio.run(main())


def test_who_waits_at_a_registry_that_ends_is_told() -> None:
    """Its connection was just closed."""

    async def main() -> None:
        made = redirector(Limits(), max_wait=120.0)
        assert await _who_waits(made, "a", "b") == "ab"
        await made.close()
        assert made.refused == ["the registry is shutting down: try again"] * 2

    asyncio.run(main())


def test_places_to_wait_are_limited_in_a_cluster_too() -> None:
    async def main() -> None:
        made = redirector(Limits(queue=2), max_wait=120.0)
        assert await _who_waits(made, "acme", "acme", "acme", "other") == "acmeacmeother"
        assert made.refused == ["tenant acme has 2 of 2 queue places (limit queue): try again later"]
        await made.close()

    asyncio.run(main())


def test_limits_in_the_store_reach_whoever_follows(tmp_path: Path) -> None:
    async def main() -> None:
        store, tenancy = SqliteStore(tmp_path / "db"), Tenancy({})
        following = asyncio.ensure_future(follow_limits(store, tenancy))
        await LimitBook(store).set("acme", Limits(sessions=3))
        while tenancy.limits("acme").sessions != 3:
            await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()

    asyncio.run(main())


def test_limits_of_a_newer_gpuferry_are_passed_on_and_not_set(tmp_path: Path) -> None:
    """A monitor that knows them heard nothing from an older registry, which said that it had set them."""
    newer = b"\xd1\x05" + struct.pack("<d", 7.0)  # field 90 of Limits

    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        directory, limits = Directory(store, 60.0), LimitBook(store)
        service = RegistryService(directory, TokenBook(store), 60.0, limits, ClusterUsage(store))
        await directory.register("a:1", [])
        await store.put("tenant/acme", tenants_pb2.Limits(tenant="acme").SerializeToString() + newer)
        beat = registry_pb2.HeartbeatRequest(load=registry_pb2.Load(address="a:1"))
        reply = await service.Heartbeat(beat, Refusing())
        assert [only_newer(one) for one in reply.tenants] == [newer]
        wanted = tenants_pb2.Limits.FromString(b"\x0a\x04acme" + newer)
        with pytest.raises(Aborted, match="does not know all of these limits"):
            await service.SetTenant(tenants_pb2.SetRequest(limits=wanted), Refusing())
        await store.close()

    asyncio.run(main())


def test_usage_of_a_server_that_is_gone_is_kept_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    now = 0.0

    async def main() -> None:
        nonlocal now
        store = SqliteStore(tmp_path / "db")
        accounts = ClusterUsage(store, lambda: now)
        a, b = server("a:1", used=5), server("b:1", used=7)
        await accounts.note(a.load)
        await accounts.note(b.load)
        await accounts.note(server("b:1", used=8).load)  # soon after: only in the heartbeat
        (acme,) = await accounts.reports([a, server("b:1", used=8)], {})
        assert (acme.usage.sessions, acme.usage.wall_seconds) == (13, 26.0)
        assert [(one.day, one.sessions) for one in acme.days] == [("2026-11-22", 13)]
        now = 100.0
        await accounts.note(server("b:1", used=9).load)
        await accounts.note(server("a:1", used=1).load)  # it lost its state folder
        acme, default = await ClusterUsage(store).reports([], {"default": Limits(sessions=1)})
        assert acme.usage.sessions == 14  # of servers that are gone
        assert acme.limits.sessions == 1
        assert (default.tenant, default.set.sessions) == ("default", 1)  # what was set can be looked at
        await store.close()

    asyncio.run(main())


def test_an_account_of_many_days_fits_into_etcd(tmp_path: Path) -> None:
    """A thousand tenants' days of three months in one value are 12 MB, and etcd takes 1.5: no account was
    kept any more, and every heartbeat in which one was due failed.
    """
    sizes = []

    class Narrow(SqliteStore):
        async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
            sizes.append(len(value))
            await super().put(key, value, ttl)

    async def main() -> None:
        store, now = Narrow(tmp_path / "store.db"), [0.0]
        book = ClusterUsage(store, lambda: now[0])
        for day in [f"2026-{month:02}-{day:02}" for month in (1, 2, 3, 4) for day in range(1, 31)]:
            load = registry_pb2.Load(address="a:1")
            for number in range(20):
                name = f"tenant-{number:055}"
                load.tenants.add(tenant=name, usage=usage(name, 1000), days=[usage(name, 2, day)])
            await book.note(load)
            now[0] += 20
        reports = await book.reports([], {})
        assert [len(one.days) for one in reports] == [92] * 20
        assert (reports[0].usage.sessions, reports[0].days[0].day) == (1000, "2026-01-29")
        assert max(sizes) < 4096
        await store.close()

    asyncio.run(main())


def test_an_account_of_the_release_before_goes_on(tmp_path: Path) -> None:
    """It had all days in one value; what is no day makes no key."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        old = [usage("acme", 3, "2026-11-20"), usage("acme", 4, "2026-11-21")]
        reports = [tenants_pb2.Report(tenant="acme", usage=usage("acme", 7), days=old)]
        await store.put("usage/a:1", tenants_pb2.ListReply(reports=reports).SerializeToString())
        said = server("a:1", used=9)
        said.load.tenants[0].days.append(usage("acme", 1, "../../cluster"))
        await ClusterUsage(store).note(said.load)
        (acme,) = await ClusterUsage(store).reports([], {})
        assert [(one.day, one.sessions) for one in acme.days] == [
            ("2026-11-20", 3),
            ("2026-11-21", 4),
            ("2026-11-22", 9),
        ]
        assert acme.usage.sessions == 9
        keys = [f"usage/a:1{day}" for day in ("", "/2026-11-20", "/2026-11-21", "/2026-11-22")]
        assert list(await store.read("usage/")) == keys
        await store.close()

    asyncio.run(main())


def test_an_account_that_is_damaged_is_kept_anew_and_none_is_made_up_meanwhile(tmp_path: Path) -> None:
    """The server's heartbeats failed from then on, and nobody saw which record it was."""

    async def main() -> None:
        store, now = SqliteStore(tmp_path / "store.db"), [0.0]
        book = ClusterUsage(store, lambda: now[0])
        await book.note(server("a:1", used=9).load)
        for key in ("usage/a:1", "usage/a:1/2026-11-22"):
            await store.put(key, b"\xff")
            with pytest.raises(StoreError, match=f"the record {key} is damaged"):
                await book.reports([], {})
            now[0] += 20
            await book.note(server("a:1", used=9).load)
        (acme,) = await book.reports([], {})
        assert (acme.usage.sessions, acme.days[0].sessions) == (9, 9)
        await store.close()

    asyncio.run(main())


def test_limits_that_are_damaged_keep_nobody_from_others(tmp_path: Path) -> None:
    """They ended every replica of the registry."""

    async def main() -> None:
        store, tenancy = SqliteStore(tmp_path / "db"), Tenancy({})
        await store.put("tenant/aaa", b"\xff")
        await LimitBook(store).set("acme", Limits(sessions=3))
        following = asyncio.ensure_future(follow_limits(store, tenancy))
        while not following.done() and tenancy.limits("acme").sessions != 3:
            await asyncio.sleep(0.01)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()

    asyncio.run(main())
