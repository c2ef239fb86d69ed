"""The priority queue of policies over invocations, beside a plain sort."""

from __future__ import annotations

from gpuferry.monitor.policy.invocations.ranking import Ranking
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.tuples(st.integers(0, 15), st.none() | st.integers(0, 20)), max_size=300)


@given(STEPS, st.integers(0, 6))
def test_the_first_of_a_ranking_are_those_of_least_rank(
    steps: list[tuple[int, int | None]], number: int
) -> None:
    """Whatever was ranked anew or taken out before."""
    ranking: Ranking[int] = Ranking()
    ranks: dict[int, tuple[int, int]] = {}
    for moment, (key, rank) in enumerate(steps):
        if rank is None:
            ranking.discard(key)
            ranks.pop(key, None)
        else:
            ranking.set(key, rank)
            if key not in ranks or ranks[key][0] != rank:
                ranks[key] = rank, moment
        ordered = sorted(ranks, key=lambda key: ranks[key])
        assert ranking.least(number) == ordered[:number]
        assert ranking.first() == (ordered[0] if ordered else None)
