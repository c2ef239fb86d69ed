"""Tables in terminals of any width: what commands want stays whole."""

from __future__ import annotations

import io

from gpuferry.monitor.cli.grid import BETWEEN, CUTS, Column, Gives, Grid, left, right
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

WORDS = st.text("abcdefgh", min_size=1, max_size=20)
COLUMNS = st.builds(Column, WORDS, st.sampled_from(("left", "right")), st.sampled_from(Gives))
LEAST = {**dict(CUTS), Gives.WAY: 0}


def printed(grid: Grid, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, emoji=False).print(grid)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def sessions() -> Grid:
    columns = left("program", Gives.WIDTH), right("pid"), right("calls", Gives.WAY), right("age")
    grid = Grid(right("id"), *columns, left("why", Gives.LINES), title="Sessions")
    grid.add_row("7", "a-program-with-a-long-name", "4711", "1,234", "2.5s", Text("nothing is free, nowhere"))
    return grid


def test_all_of_it_where_there_is_room() -> None:
    assert printed(sessions(), 100) == [
        "Sessions",
        "id  program                      pid  calls   age  why",
        " 7  a-program-with-a-long-name  4711  1,234  2.5s  nothing is free, nowhere",
    ]


def test_names_are_cut_first() -> None:
    assert printed(sessions(), 66)[2] == " 7  a-program-with-a…  4711  1,234  2.5s  nothing is free, nowhere"


def test_then_figures_are_left_out_and_reasons_take_lines() -> None:
    assert printed(sessions(), 46)[1:] == [
        "id  program    pid   age  why",
        " 7  a-progr…  4711  2.5s  nothing is free,",
        "                          nowhere",
    ]


@given(st.lists(COLUMNS, min_size=1, max_size=8), st.data())
def test_what_gives_nothing_is_whole_wherever_it_fits(columns: list[Column], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[WORDS for _ in columns]), max_size=4))
    needed = BETWEEN * (len(columns) - 1)
    for index, column in enumerate(columns):
        whole = max(len(cell) for cell in (column.title, *(row[index] for row in rows)))
        needed += min(whole, LEAST.get(column.gives, whole))
    grid = Grid(*columns)
    for row in rows:
        grid.add_row(*row)
    lines = printed(grid, data.draw(st.integers(max(needed, 1), needed + 80)))
    assert all(len(line) <= needed + 80 for line in lines)
    text = "\n".join(lines)
    for index, column in enumerate(columns):
        if column.gives is Gives.NOTHING:
            assert column.title in text
            assert all(row[index] in text for row in rows)
