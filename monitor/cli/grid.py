"""Tables that fit into a terminal: in a narrow one names are cut, and what commands want is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.table import Table
from rich.text import Text

from .errors import plain

Cell = str | Text
BETWEEN = 2  # characters between two columns


class Gives(Enum):
    """What a column gives where there is too little room."""

    NOTHING = auto()
    WIDTH = auto()  # cut
    LINES = auto()  # on several of them
    WAY = auto()  # left out, the last one first


LEAST = {Gives.WIDTH: 12, Gives.LINES: 24}  # characters, for which others are left out
# In this order, to so many characters.
CUTS = ((Gives.LINES, 24), (Gives.WIDTH, 8), (Gives.LINES, 12), (Gives.WIDTH, 4))


class Column(NamedTuple):
    """A column's title, where its cells stand, and what it gives."""

    title: str
    justify: JustifyMethod = "left"
    gives: Gives = Gives.NOTHING


def left(title: str, gives: Gives = Gives.NOTHING) -> Column:
    """Return a column with this title, whose cells begin at its left, as words do. `gives`: as in Gives."""
    return Column(title, "left", gives)


def right(title: str, gives: Gives = Gives.NOTHING) -> Column:
    """Return a column with this title, whose cells end at its right, as numbers do. `gives`: as in Gives."""
    return Column(title, "right", gives)


def names(*titles: str) -> list[Column]:
    """Return columns of names with these titles, which are cut where there is too little room."""
    return [left(title, Gives.WIDTH) for title in titles]


class Grid:
    """A table that is laid out when it is printed, for the width that there is then."""

    def __init__(self, *columns: Column, title: str | None = None, header_style: str = "bold") -> None:
        self._columns = columns
        self._title = title
        self._header_style = header_style
        self._rows: list[Sequence[Cell]] = []

    def add_row(self, *cells: Cell) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append([_tame(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        widths = self._widths()
        shown = self._shown(widths, options.max_width)
        table = Table(
            title=self._title, title_justify="left", box=None, header_style=self._header_style, pad_edge=False
        )
        wanted = _cut(self._columns, widths, shown, options.max_width)
        for index in shown:
            title, justify, gives = self._columns[index]
            table.add_column(
                title, justify=justify, no_wrap=gives is not Gives.LINES, max_width=wanted.get(index)
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in shown))
        yield table

    def _widths(self) -> list[int]:
        """Of each column, if all of it is shown."""
        return [
            max(_width(cell) for cell in (column.title, *(row[index] for row in self._rows)))
            for index, column in enumerate(self._columns)
        ]

    def _shown(self, widths: Sequence[int], room: int) -> list[int]:
        """The columns for which there is room."""
        shown = list(range(len(widths)))
        least = [
            min(width, LEAST.get(column.gives, width))
            for column, width in zip(self._columns, widths, strict=True)
        ]
        for index in reversed(range(len(widths))):
            if _sum(least, shown) > room and self._columns[index].gives is Gives.WAY:
                shown.remove(index)
        return shown


def _cut(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], room: int) -> dict[int, int]:
    """How wide columns are that are not shown whole."""
    kept = list(widths)
    for kind, least in CUTS:
        those = [index for index in shown if columns[index].gives is kind]
        while _sum(kept, shown) > room and any(kept[index] > least for index in those):
            kept[max(those, key=lambda index: kept[index])] -= 1
    return {index: kept[index] for index in shown if kept[index] < widths[index]}


def _sum(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[index] for index in shown) + BETWEEN * (len(shown) - 1)


def _tame(cell: Cell) -> Cell:
    """What a monitor says is text: nothing of it steers the terminal."""
    if isinstance(cell, str):
        return plain(cell)
    return cell if cell.plain.isprintable() else Text(plain(cell.plain), style=cell.style)


def _width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)
