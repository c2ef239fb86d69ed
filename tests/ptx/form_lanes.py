"""Forms by which lanes tell each other: those of a mask, and whole warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .form import Form, Names, Scene, Words
from .formats import F32
from .test_mixed import FORMS as FLOATS
from .test_mixed import reduced
from .test_warp import MODES, shuffled

# Of the words of a group, a list for each; its lanes; and which of them it is.
Told = Callable[..., Sequence[int]]


def _each(results: int, told: Told, scene: Scene, *words: Words) -> list[Words]:
    """What each member is told of the words of all, given as lists by member."""
    made = [scene.nothing() for _ in range(results)]
    for first, members in scene.warps():
        for index, me in enumerate(members):
            lists = [[int(word[each]) for each in members] for word in words]
            lanes = [each - first for each in members]
            for result, value in zip(made, told(*lists, lanes, index), strict=True):
                result[me] = value
    return made


def _mask(lanes: list[int], chosen: Sequence[bool]) -> int:
    return sum(1 << lane for lane, yes in zip(lanes, chosen, strict=True) if yes)


def _picked(values: list[int], by: list[int], lanes: list[int], me: int) -> list[int]:
    """From the member whose number, counted among them, a register says."""
    return [values[by[me] % len(lanes)]]


def _alike(low: list[int], high: list[int], lanes: list[int], me: int) -> list[int]:
    """Of the lowest bit of each half of 64."""
    keys = [(a & 1, b & 1) for a, b in zip(low, high, strict=True)]
    return [_mask(lanes, [key == keys[me] for key in keys])]


def _all_alike(values: list[int], lanes: list[int], me: int) -> list[int]:
    same = len({value & 1 for value in values}) == 1
    return [_mask(lanes, [same] * len(lanes)), int(same)]


def _uniform(values: list[int], lanes: list[int], me: int) -> list[int]:
    return [int(len({value & 1 for value in values}) == 1)]


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _reduced_signed(how: str, values: list[int], lanes: list[int], me: int) -> list[int]:
    signed = [_signed(value) for value in values]
    operations: dict[str, Callable[[list[int]], int]] = {"add": sum, "min": min, "max": max}
    return [operations[how](signed) & 0xFFFFFFFF]


def _reduced_float(how: str, values: list[int], lanes: list[int], me: int) -> list[int]:
    return [F32.encode(reduced(how, [F32.decode(value) for value in values]))]


def _elected(lanes: list[int], me: int) -> list[int]:
    """One of them, whom all know: how many there are, and whether it is the one named."""
    return [1, 1]


def _shuffle(mode: str, scene: Scene, values: Words, by: Words, limits: Words) -> list[Words]:
    """Each lane by its own numbers: as all would by them."""
    results, inside = scene.nothing(), scene.nothing()
    for first, members in scene.warps():
        warp = values[first : first + 32]
        for me in members:
            out, valid = shuffled(mode, warp, int(by[me]) & 31, int(limits[me]) & 0x1F1F)
            results[me], inside[me] = out[me - first], valid[me - first]
    return [results, inside]


def _known_shuffle(mode: str, scene: Scene, values: Words) -> list[Words]:
    by, limits = _known(scene.k)
    return _shuffle(mode, scene, values, scene.nothing() + by, scene.nothing() + limits)


def _known(k: int) -> tuple[np.uint32, np.uint32]:
    segments = (0x1F, 0x0, 0x181F, 0x1C1F, 0x1E1F, 0x1807, 0x0F, 0x1800, 0x1C00)
    return np.uint32(k & 31), np.uint32(segments[(k >> 5) % len(segments)])


def _shuffle_code(mode: str, n: Names) -> str:
    return (
        f"shfl.sync.{mode}.b32 {n.d[0]}|%q, {n.a[0]}, {n.a[1]}, {n.a[2]}, 0xffffffff;"
        f" selp.u32 {n.d[1]}, 1, 0, %q;"
    )


def _known_code(mode: str, n: Names) -> str:
    by, limits = _known(n.k)
    return (
        f"shfl.sync.{mode}.b32 {n.d[0]}|%q, {n.a[0]}, {by}, {limits}, 0xffffffff;"
        f" selp.u32 {n.d[1]}, 1, 0, %q;"
    )


def _written(text: str, n: Names) -> str:
    return text.format(n=n)


def forms() -> list[Form]:
    pick = (
        "popc.b32 %t0, {n.mask}; rem.u32 %t0, {n.a[1]}, %t0; add.u32 %t0, %t0, 1;"
        " fns.b32 %t0, {n.mask}, 0, %t0; shfl.sync.idx.b32 {n.d[0]}, {n.a[0]}, %t0, 31, {n.mask};"
    )
    alike = (
        "and.b32 %t0, {n.a[0]}, 1; and.b32 %t1, {n.a[1]}, 1; mov.b64 %x0, {{%t0, %t1}};"
        " match.any.sync.b64 {n.d[0]}, %x0, {n.mask};"
    )
    all_alike = (
        "and.b32 %t0, {n.a[0]}, 1; match.all.sync.b32 {n.d[0]}|%q, %t0, {n.mask};"
        " selp.u32 {n.d[1]}, 1, 0, %q;"
    )
    uniform = (
        "and.b32 %t0, {n.a[0]}, 1; setp.ne.u32 %q, %t0, 0; vote.sync.uni.pred %q, !%q, {n.mask};"
        " selp.u32 {n.d[0]}, 1, 0, %q;"
    )
    elected = (
        "elect.sync %t0|%q, {n.mask}; vote.sync.ballot.b32 %t1, %q, {n.mask}; popc.b32 {n.d[0]}, %t1;"
        " shr.u32 %t1, %t1, %t0; and.b32 {n.d[1]}, %t1, 1;"
    )
    found: list[tuple[str, int, int, str, Told]] = [
        ("shfl to a member", 1, 2, pick, _picked),
        ("match.any.b64", 1, 2, alike, _alike),
        ("match.all", 2, 1, all_alike, _all_alike),
        ("vote.uni", 1, 1, uniform, _uniform),
        ("elect", 2, 0, elected, _elected),
    ]
    for how in ("add", "min", "max"):
        code = f"redux.sync.{how}.s32 {{n.d[0]}}, {{n.a[0]}}, {{n.mask}};"
        found.append((f"redux.{how}.s32", 1, 1, code, partial(_reduced_signed, how)))
    for how in FLOATS:
        code = f"mov.b32 %f0, {{n.a[0]}}; redux.sync.{how}.f32 %f1, %f0, {{n.mask}}; mov.b32 {{n.d[0]}}, %f1;"
        found.append((f"redux.{how}.f32", 1, 1, code, partial(_reduced_float, how)))
    made = [
        Form(name, "lanes", results, given, partial(_written, text), partial(_each, results, told))
        for name, results, given, text, told in found
    ]
    for mode in MODES:
        made.append(Form(f"shfl.{mode}", "warp", 2, 3, partial(_shuffle_code, mode), partial(_shuffle, mode)))
        made.append(
            Form(
                f"shfl.{mode} by constants",
                "warp",
                2,
                1,
                partial(_known_code, mode),
                partial(_known_shuffle, mode),
            )
        )
    return made
