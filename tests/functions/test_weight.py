"""What memory a replica has, where its processes are looked at one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpuferry.monitor.functions import process

ROUGHLY = {1: 78, 2: 60, 3: 60}
FORKING = {1: 78, 2: 30, 3: 20}  # 1 forked 2, and 2 forked 3, each after it was looked at
SHARED = {1: 38, 2: 20, 3: 20}


@pytest.mark.parametrize(
    ("looks", "weight"),
    [
        ([ROUGHLY, SHARED], 78),
        ([ROUGHLY, FORKING, SHARED], 78),
        ([ROUGHLY, FORKING, FORKING, FORKING], 128),
        ([SHARED], 78),
    ],
    ids=["shared", "while it forks", "too much", "little"],
)
def test_what_is_shared_counts_once_also_while_they_fork(
    monkeypatch: pytest.MonkeyPatch, looks: list[dict[int, int]], weight: int
) -> None:
    reads = one_by_one(looks)
    monkeypatch.setattr(process, "_sum", lambda pid, *_: next(reads)[pid])
    assert process.weight([1, 2, 3], 96) == weight
    assert list(reads) == []


def one_by_one(looks: list[dict[int, int]]) -> Iterator[dict[int, int]]:
    for look in looks:
        yield from [look] * len(look)
