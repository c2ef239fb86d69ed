"""What strangers cause many of, is logged a few times and counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gpuferry.monitor.door import credentials
from gpuferry.monitor.door.handshake import Claim, Proven, Refusal
from gpuferry.monitor.service import rates
from gpuferry.monitor.service.rates import Buckets, Sparing
from gpuferry.monitor.store.interface import StoreError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_what_it_was_filled_with() -> None:
    clock = Clock()
    buckets = Buckets(clock)
    assert [buckets.take("a", 1.0, 2.0) for _ in range(3)] == [True, True, False]
    clock.now = 1.0
    assert [buckets.take("a", 1.0, 2.0) for _ in range(2)] == [True, False]
    clock.now = -100.0  # a clock that goes back takes nothing away
    assert not buckets.take("a", 1.0, 2.0)


def test_many_keys_take_no_more_memory_than_a_few() -> None:
    buckets = Buckets(Clock(), most=10)
    for key in range(1000):
        assert buckets.take(key, 1.0, 1.0)
    assert len(buckets._filled) == 10
    assert not buckets.take(999, 1.0, 1.0)


def test_a_storm_of_refusals_is_a_few_lines_and_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "FLUSH_SECONDS", 0.0)
    lines: list[tuple[str, dict[str, Any]]] = []

    async def main() -> None:
        sparing = Sparing(lambda event, **fields: lines.append((event, fields)), Clock())
        for number in range(1000):
            sparing.say("refused", ("DENIED", "10.0.0.1"), reason="DENIED", peer=f"10.0.0.1:{number}")
        sparing.say("refused", ("DENIED", "10.0.0.2"), reason="DENIED", peer="10.0.0.2:1")
        while not any("suppressed" in event for event, _ in lines):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [fields["peer"] for event, fields in lines if event == "refused"] == [
        *(f"10.0.0.1:{number}" for number in range(5)),
        "10.0.0.2:1",
    ]
    assert lines[-1] == ("refused (DENIED): 995 more suppressed", {})


def test_a_storm_from_everywhere_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "FLUSH_SECONDS", 0.0)
    lines: list[str] = []

    async def main() -> None:
        sparing = Sparing(lambda event, **_: lines.append(event), Clock())
        for number in range(5000):
            sparing.say("refused", number)
        while "suppressed" not in lines[-1]:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(lines) == 51
    assert lines[-1] == "refused: 4950 more suppressed"


def test_a_store_that_does_not_answer_is_told_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who names a tenant has it asked."""
    lines: list[str] = []

    class Log:
        def error(self, event: str, **_: object) -> None:
            lines.append(event)

    class Broken:
        def at_once(self, claim: Claim) -> Proven | None:
            return None

        async def judge(self, claim: Claim) -> Proven | None:
            raise StoreError("it is locked")

    monkeypatch.setattr(credentials, "log", Log())
    claim: Any = None

    async def main() -> None:
        for _ in range(100):
            with pytest.raises(Refusal):
                await credentials.look_up(Broken(), claim)

    asyncio.run(main())
    assert 0 < len(lines) <= 10
