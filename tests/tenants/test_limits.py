"""Limits of tenants: how they are written, who may set them, which hold, and how they are kept."""

from __future__ import annotations

import asyncio
import math
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.guest.units import parse_size
from gpuferry.monitor.broker.admission import Admission
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.policy.interface import Standing
from gpuferry.monitor.policy.portion import Portion
from gpuferry.monitor.settings.errors import UsageError
from gpuferry.monitor.settings.limits import BUILT_IN, Limits, limits_of, parse_limits
from gpuferry.monitor.settings.monitor_options import MonitorOptions
from gpuferry.monitor.settings.sources import load
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.monitor.tenants.book import CLUSTERS, LimitBook
from gpuferry.monitor.tenants.messages import from_message, only_newer, plain_limits, to_message
from gpuferry.monitor.tenants.tenancy import Source, Tenancy
from gpuferry.specs._generated import tenants_pb2
from hypothesis import given
from hypothesis import strategies as st

TOML = """
[tenants.acme]
sessions = 4
memory = "8GiB"
calls = "10/s"
wall = "1h"

[tenants.default]
sessions = 1
"""


def test_what_a_file_says_holds(tmp_path: Path) -> None:
    file = tmp_path / "monitor.toml"
    file.write_text(TOML)
    tenancy = Tenancy(load(MonitorOptions, "monitor", {}, str(file)).values.tenants or {})
    acme = tenancy.limits("acme")
    assert (acme.sessions, acme.memory, acme.calls, acme.wall) == (4, 8 << 30, 10, 3600)
    assert acme.queue == BUILT_IN.queue
    assert tenancy.limits("other").sessions == 1
    assert tenancy.limits("").sessions == math.inf  # the operator's own programs
    assert tenancy.named() == {"acme"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            "[tenants.acme]\nsessoins = 4\n",
            "acme: 'sessoins' is no limit of a tenant: known are sessions, memory",
        ),
        ('[tenants.acme]\nmemory = "much"\n', "acme: memory: 'much' is no size"),
        ("[tenants.acme]\nsessions = -1\n", "acme: sessions: -1 is too few"),
        ('[tenants.acme]\ncalls = "10/week"\n', "acme: calls: '10/week' is no rate: write 10/s"),
        ("[tenants.acme]\nweight = 0\n", "acme: weight: 0 is out of range: 0.01 to 100"),
        ('[tenants.acme]\nwall = "soon"\n', "acme: wall: 'soon' is no duration: write 90"),
        ("[tenants.Acme]\nsessions = 4\n", "'Acme' is no tenant's name: lower-case letters"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "monitor.toml"
    file.write_text("pool = 2\n" + content)
    with pytest.raises(UsageError) as caught:
        load(MonitorOptions, "monitor", {}, str(file))
    assert f"{file}:2: tenants: {complaint}" in str(caught.value)


def test_a_pool_that_no_machine_could_have_is_too_many() -> None:
    with pytest.raises(UsageError, match="at most 4096 are possible"):
        load(MonitorOptions, "monitor", {"pool": "99999999999999"})
    nines = "9" * 400  # as many were an OverflowError, of commands too
    for flags, words in (
        ({"memory": nines}, "is more than anything has"),
        ({"host_memory": "99999999TiB"}, "is more than anything has"),
        ({"tenants": f"acme=memory={nines}.5"}, "is more than anything has"),
        ({"tenants": f"acme=sessions={nines}"}, "is too many: at most"),
    ):
        with pytest.raises(UsageError, match=words):
            load(MonitorOptions, "monitor", flags)
    assert parse_size("9007199254740993") == 9007199254740993


def test_a_flag_says_the_same() -> None:
    flags = {"tenants": "acme=sessions=4:memory=1GiB,default=queue=none"}
    found = limits_of(load(MonitorOptions, "monitor", flags).values.tenants or {})
    assert found == {"acme": Limits(sessions=4, memory=1 << 30), "default": Limits(queue=math.inf)}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("acme=sessions=4,acme=memory=1GiB", "acme is given twice"),
        ("acme=sessions=4:sessions=8", "acme: sessions is given twice"),
    ],
)
def test_what_is_said_twice_is_no_limit(said: str, words: str) -> None:
    """The first went without a word: with `--tenants acme=sessions=4 --tenants acme=memory=1GiB` acme had as
    many sessions as it liked.
    """
    with pytest.raises(UsageError, match=words):
        load(MonitorOptions, "monitor", {"tenants": said})


@pytest.mark.parametrize(
    ("limit", "devices", "request_", "words"),
    [
        ("gpus=3", 2, 0, "has 2 of 3 GPUs (limit gpus)"),
        ("gpus=4", 2, 0, ""),
        ("share=1", 2, 400, "has 0.5 of 1 GPUs of time promised (limit share)"),
        ("share=1.5", 2, 400, ""),
    ],
)
def test_who_waited_in_vain_is_told_which_limit_it_was(
    limit: str, devices: int, request_: int, words: str
) -> None:
    """Of GPUs and shares of their time it was told that its tenant had all that its limits allow."""
    placer: Any = SimpleNamespace(standing=lambda tenant: Standing(1, 2, 0, gpus=2, time=500))
    admission = Admission(placer, Tenancy({"acme": limit}), 10)
    hello = Hello(b"", 1, 0, "acme", "", "p", devices=devices, portion=Portion(request_))
    told = admission.why_waiting(hello)
    assert words in told
    assert bool(words) == bool(told)


def test_the_later_source_holds_and_each_limit_by_itself() -> None:
    tenancy = Tenancy({"acme": "sessions=4:queue=5", "default": "wall=60"})
    assert tenancy.update(Source.CLUSTER, {"acme": Limits(sessions=8), "default": Limits(sessions=2)})
    assert tenancy.update(Source.MACHINE, {"acme": Limits(memory=math.inf)})
    assert not tenancy.update(Source.MACHINE, {"acme": Limits(memory=math.inf)})
    acme = tenancy.limits("acme")
    assert (acme.sessions, acme.queue, acme.memory, acme.wall) == (8, 5, math.inf, 60)
    assert tenancy.limits("other").sessions == 2
    assert tenancy.share("acme").sessions == 8


@given(st.text(max_size=20), st.sampled_from(["sessions", "memory", "queue", "calls", "wall", "weight"]))
def test_any_text_is_a_limit_or_an_error(text: str, name: str) -> None:
    """And what is shown of a limit means that limit."""
    try:
        limits = parse_limits({name: text})
    except ValueError:
        return
    if name not in ("memory", "wall"):  # which are shown in round figures
        assert parse_limits(limits.shown()).shown() == limits.shown()


def test_a_restart_keeps_what_was_set(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        book = LimitBook(store)
        await book.set("acme", Limits(sessions=4, memory=math.inf))
        assert await book.set("acme", Limits(queue=7), unset=["sessions"]) == Limits(memory=math.inf, queue=7)
        await LimitBook(store, CLUSTERS).replace({"x": Limits(sessions=1), "y": Limits(sessions=2)})
        await LimitBook(store, CLUSTERS).replace({"y": Limits(sessions=3)})
        await store.close()
        again = SqliteStore(tmp_path / "db")
        assert await LimitBook(again).all() == {"acme": Limits(memory=math.inf, queue=7)}
        assert await LimitBook(again, CLUSTERS).all() == {"y": Limits(sessions=3)}
        await LimitBook(again).set("acme", Limits(), unset=["memory", "queue"])
        assert not await LimitBook(again).all()
        await again.close()

    asyncio.run(main())


def test_what_only_a_newer_gpuferry_knows_of_limits_stays(tmp_path: Path) -> None:
    """`tenant set` at an older registry of the same cluster dropped it."""
    newer = b"\xd1\x05" + struct.pack("<d", 7.0)  # field 90

    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        book = LimitBook(store)
        await store.put("tenant/acme", to_message("acme", Limits(queue=1)).SerializeToString() + newer)
        assert await book.set("acme", Limits(sessions=4), unset=["queue"]) == Limits(sessions=4)
        (message,) = await book.messages()
        assert (only_newer(message), message.sessions, message.HasField("queue")) == (newer, 4.0, False)
        await book.set("acme", Limits(), unset=["sessions"])
        assert [only_newer(one) for one in await book.messages()] == [newer]
        await book.replace({"acme": Limits(sessions=2)})  # what another says, who knows it or not
        assert [only_newer(one) for one in await book.messages()] == [b""]
        await store.close()

    asyncio.run(main())


def test_a_damaged_record_is_the_stores_affair(tmp_path: Path) -> None:
    """A monitor that follows its store ended, and the next one."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "db")
        await store.put("tenant/acme", b"\xff")
        for ask in (LimitBook(store).all(), LimitBook(store).set("acme", Limits(queue=1))):
            with pytest.raises(StoreError, match="the record tenant/acme is damaged"):
                await ask
        await store.close()

    asyncio.run(main())


def test_numbers_of_a_stranger_are_not_believed() -> None:
    message = tenants_pb2.Limits(tenant="x", sessions=math.nan, memory=-1, queue=3, weight=1e9)
    assert from_message(message) == Limits(queue=3, weight=100)
    assert plain_limits(to_message("x", Limits(sessions=math.inf, calls=0.5))) == {
        "sessions": None,
        "calls": 0.5,
    }


def test_calls_of_the_control_plane_are_counted_by_a_clock() -> None:
    now = 0.0
    tenancy = Tenancy({"acme": "calls=2/s", "none": "calls=0"}, clock=lambda: now)
    assert [tenancy.why_no_call("acme") is None for _ in range(3)] == [True, True, False]
    assert not tenancy.why_no_call("other")
    now = 0.5
    assert [tenancy.why_no_call("acme") is None for _ in range(2)] == [True, False]
    now = 1000.0
    assert [tenancy.why_no_call("acme") is None for _ in range(3)] == [True, True, False]
    assert all("may make 0/s calls (limit calls)" in (tenancy.why_no_call("none") or "") for _ in range(2))


def test_starts_are_counted_by_time_and_none_at_all_may_be_said() -> None:
    now = [0.0]
    tenancy = Tenancy({"acme": "starts=6/m:burst=2", "shut": "starts=0"}, lambda: now[0])
    assert [tenancy.why_no_start("acme") is None for _ in range(3)] == [True, True, False]
    now[0] = 7.5
    assert "try again in 3 s" in (tenancy.why_no_start("acme") or "")
    now[0] = 10.0
    assert tenancy.why_no_start("acme") is None
    assert "none may begin" in (tenancy.why_no_start("shut") or "")
    assert tenancy.why_no_start("") is None  # the operator's own
    assert tenancy.starts_refused == {"acme": 2, "shut": 1}
    with pytest.raises(ValueError, match="write sessions=0"):
        parse_limits({"burst": "0"})
