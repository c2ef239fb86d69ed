"""Forms of loads, stores, copies and atomics, on memory of the thread's own: bytes, of which each type sees
its own part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .form import AREA, INPUTS, MOST_THREADS, SIZES, WORLD, Form, Names, Scene, Words, mix, mixed
from .formats import BF16, F16, F32, F64, Arithmetic, Format

BULK = 128  # bytes of a copy
SPACES = ("shared", "global", "local")
_TYPES = (
    "u8",
    "s8",
    "b8",
    "u16",
    "s16",
    "b16",
    "u32",
    "s32",
    "b32",
    "f32",
    "u64",
    "s64",
    "b64",
    "f64",
    "b128",
)
_LOADS = ("", ".ca", ".cg", ".cs", ".cv", ".volatile", ".relaxed.cta", ".acquire.gpu", ".weak")
_STORES = ("", ".wb", ".cg", ".cs", ".wt", ".volatile", ".relaxed.cta", ".release.gpu", ".weak")


def row_offset(size: int) -> int:
    """Of the elements of a size in the world, in bytes."""
    return MOST_THREADS * (AREA + sum(each for each in SIZES if each < size))


WORLD_BYTES = row_offset(32)


@dataclass(frozen=True)
class Moved:
    """A type and how many of it; what the instruction says of order."""

    type: str
    count: int
    load: str
    store: str

    @property
    def bytes(self) -> int:
        return int(self.type[1:]) // 8

    @property
    def all(self) -> int:
        return self.bytes * self.count

    @property
    def suffix(self) -> str:
        return f"{f'.v{self.count}' if self.count > 1 else ''}.{self.type}"


def _moved(choices: object, space: str, most: int = 16) -> Moved:
    pick = choices.choice  # type: ignore[attr-defined]
    type_ = pick(_TYPES)
    size = int(type_[1:]) // 8
    count = pick([each for each in (1, 2, 4) if each * size <= most and size < 16] or [1])
    load, store = pick(_LOADS), pick(_STORES)
    if space == "local":
        load = store = ""
    return Moved(type_, count, load, store)


def _register(moved: Moved, index: int) -> str:
    prefix = {1: "%h", 2: "%h", 4: "%w", 8: "%x", 16: "%y"}[moved.bytes]
    if moved.type[0] == "f":
        prefix = "%f" if moved.bytes == 4 else "%g"
    return f"{prefix}{index}"


_SCOPE = (
    "{ .reg .b16 %h<4>; .reg .b32 %w<6>; .reg .b64 %x<6>; .reg .b128 %y<1>; .reg .f32 %f<4>; .reg .f64 %g<2>;"
    " .reg .b64 %at; .reg .b32 %to, %index; .reg .pred %no;"
)


def _give(moved: Moved, a: Sequence[str]) -> str:
    """Elements of words."""
    lines = []
    for index in range(moved.count):
        to = _register(moved, index)
        if moved.bytes <= 2:
            lines.append(f"cvt.u16.u32 {to}, {a[index]};")
        elif moved.bytes == 4:
            lines.append(f"mov.b32 {to}, {a[index]};")
        elif moved.bytes == 8:
            lines.append(f"mov.b64 {to}, {{{a[2 * index]}, {a[2 * index + 1]}}};")
        else:
            lines.append(
                f"mov.b64 %x0, {{{a[0]}, {a[1]}}}; mov.b64 %x1, {{{a[2]}, {a[3]}}}; "
                f"mov.b128 {to}, {{%x0, %x1}};"
            )
    return " ".join(lines)


def _take(moved: Moved, d: Sequence[str]) -> str:
    """Words of elements, mixed."""
    lines, words = [], []
    for index in range(moved.count):
        of = _register(moved, index)
        if moved.bytes <= 2:
            lines.append(f"cvt.{'s32.s16' if moved.type[0] == 's' else 'u32.u16'} %w{index}, {of};")
            words.append(f"%w{index}")
        elif moved.bytes == 4:
            lines.append(f"mov.b32 %w{index}, {of};")
            words.append(f"%w{index}")
        elif moved.bytes == 8:
            lines.append(f"mov.b64 {{%w{2 * index}, %w{2 * index + 1}}}, {of};")
            words += [f"%w{2 * index}", f"%w{2 * index + 1}"]
        else:
            lines.append(
                f"mov.b128 {{%x0, %x1}}, {of}; mov.b64 {{%w0, %w1}}, %x0; mov.b64 {{%w2, %w3}}, %x1;"
            )
            words += [f"%w{each}" for each in range(4)]
    return " ".join([*lines, mixed(d, words)])


def _operand(moved: Moved) -> str:
    names = [_register(moved, index) for index in range(moved.count)]
    return f"{{{', '.join(names)}}}" if moved.count > 1 else names[0]


def _bytes_of(moved: Moved, words: Sequence[Words]) -> np.ndarray:
    """What _give lays into memory: [thread][byte]."""
    parts = []
    if moved.bytes >= 4:
        stacked = np.stack(words[: moved.all // 4], axis=1)
        return np.ascontiguousarray(stacked).view(np.uint8)
    for index in range(moved.count):
        parts.append(np.ascontiguousarray(words[index]).view(np.uint8).reshape(-1, 4)[:, : moved.bytes])
    return np.hstack(parts)


def _words_of(moved: Moved, data: np.ndarray) -> list[Words]:
    """What _take makes of memory before it is mixed."""
    if moved.bytes >= 4:
        return list(np.ascontiguousarray(data).view(np.uint32).T)
    kind = f"{'i' if moved.type[0] == 's' else 'u'}{moved.bytes}"
    values = np.ascontiguousarray(data).view(kind).astype(np.int64) & 0xFFFFFFFF
    return list(values.astype(np.uint32).T)


def _thread() -> str:
    """The number of a thread in the launch."""
    return (
        "mov.u32 %index, %ctaid.x; mov.u32 %to, %ntid.x; mul.lo.u32 %index, %index, %to;"
        " mov.u32 %to, %tid.x; add.u32 %index, %index, %to;"
    )


def _address(space: str, generic: bool, step: int, offset: int, symbol: str) -> tuple[str, str]:
    """Code, and what stands in brackets. `symbol`: the variable in shared memory."""
    if space == "local":
        code = "mov.u64 %at, mine;"
        if generic:
            code += " cvta.local.u64 %at, %at;"
        return code, "%at"
    if space == "shared":
        code = f"mov.u32 %index, %tid.x; mov.u32 %to, {symbol}; mad.lo.u32 %to, %index, {step}, %to;"
        if not generic:
            return code, "%to"
        return code + " cvt.u64.u32 %at, %to; cvta.shared.u64 %at, %at;", "%at"
    code = f"ld.global.u64 %at, [%inputs+{WORLD}]; {_thread()} mad.wide.u32 %at, %index, {step}, %at;"
    if offset:
        code += f" add.u64 %at, %at, {offset};"
    return code, "%at"


def _own(scene: Scene, space: str) -> np.ndarray:
    return scene.local if space == "local" else scene.memory.areas[space]


def _access_parts(choices: object, space: str) -> tuple[Moved, int, Moved, int, bool]:
    written, read = _moved(choices, space), _moved(choices, space)
    pick = choices.randrange  # type: ignore[attr-defined]
    at = pick(AREA // written.all) * written.all
    back = pick(AREA // read.all) * read.all
    return written, at, read, back, pick(2) == 1


def _access_code(space: str, n: Names) -> str:
    written, at, read, back, generic = _access_parts(n.choices, space)
    code, base = _address(space, generic, AREA, 0, "area")
    of = "" if generic else f".{space}"
    return (
        f"{_SCOPE} {code} {_give(written, n.a)}"
        f" st{_ordered(written.store, of)}{written.suffix} [{base}+{at}], {_operand(written)};"
        f" ld{_ordered(read.load, of)}{read.suffix} {_operand(read)}, [{base}+{back}]; {_take(read, n.d)} }}"
    )


def _ordered(how: str, space: str) -> str:
    """Orders stand before the space, caching behind it."""
    return f"{space}{how}" if how[1:] in ("ca", "cg", "cs", "cv", "wb", "wt") else f"{how}{space}"


def _access_value(space: str, scene: Scene, *words: Words) -> list[Words]:
    written, at, read, back, _ = _access_parts(scene.choices, space)
    own, here = _own(scene, space), scene.here
    own[here, at : at + written.all] = _bytes_of(written, words)[here]
    return mix(2, _words_of(read, own[:, back : back + read.all]))


def _row_code(space: str, n: Names) -> str:
    moved = _moved(n.choices, space)
    generic = n.k >> 8 & 1 == 1
    code, base = _address(space, generic, moved.all, row_offset(moved.all), f"row{moved.all}")
    of = "" if generic else f".{space}"
    return (
        f"{_SCOPE} {code} ld{_ordered(moved.load, of)}{moved.suffix} {_operand(moved)}, [{base}];"
        f" {_take(moved, ['%w4', '%w5'])}"
        f" {_give(moved, n.a)} st{_ordered(moved.store, of)}{moved.suffix} [{base}], {_operand(moved)};"
        f" mov.u32 {n.d[0]}, %w4; mov.u32 {n.d[1]}, %w5; }}"
    )


def _row_value(space: str, scene: Scene, *words: Words) -> list[Words]:
    moved = _moved(scene.choices, space)
    row, here = scene.memory.rows[space, moved.all], scene.here
    results = mix(2, _words_of(moved, row))
    row[here] = _bytes_of(moved, words)[here]
    return results


def _neighbours(k: int, size: int) -> tuple[int, int]:
    """By how many elements a thread is behind the one before it, and the first's."""
    return (1, 2, 0, -1, 5)[k % 5], k // 8 % (4 * INPUTS // size)


def _read_code(n: Names) -> str:
    moved = _moved(n.choices, "global")
    step, first = _neighbours(n.k, moved.all)
    last = 4 * INPUTS // moved.all - 1
    how = ".global.nc" if n.k >> 9 & 1 else _ordered(moved.load, ".global")
    return (
        f"{_SCOPE} mov.u32 %index, %tid.x; mad.lo.s32 %index, %index, {step}, {first}; "
        f"and.b32 %index, %index, {last};"
        f" mad.wide.u32 %at, %index, {moved.all}, %inputs;"
        f" ld{how}{moved.suffix} {_operand(moved)}, [%at]; {_take(moved, n.d)} }}"
    )


def _read_value(scene: Scene) -> list[Words]:
    moved = _moved(scene.choices, "global")
    step, first = _neighbours(scene.k, moved.all)
    places = (np.arange(scene.size) * step + first) & (4 * INPUTS // moved.all - 1)
    data = scene.inputs.view(np.uint8).reshape(-1, moved.all)[places]
    return mix(2, _words_of(moved, data))


def _copy_parts(k: int) -> tuple[int, str, int]:
    """Bytes, which form, and where to."""
    size = (4, 8, 16)[k % 3]
    return size, ("whole", "some", "ignored")[k // 4 % 3], k // 16 % (AREA // size) * size


def _copy_code(n: Names) -> str:
    size, form, to = _copy_parts(n.k)
    cache = "cg" if size == 16 and n.k >> 8 & 1 else "ca"
    last = 4 * INPUTS // size - 1
    rest = {"whole": "", "some": ", %w1", "ignored": ", %no"}[form]
    wait = ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;")[n.k >> 9 & 1]
    code, base = _address("shared", False, AREA, 0, "area")
    return (
        f"{_SCOPE} {code} and.b32 %w0, {n.a[0]}, {last}; mad.wide.u32 %at, %w0, {size}, %inputs;"
        f" rem.u32 %w1, {n.a[1]}, {size + 1}; and.b32 %w2, {n.a[1]}, 1; setp.ne.u32 %no, %w2, 0;"
        f" cp.async.{cache}.shared.global [{base}+{to}], [%at], {size}{rest}; {wait}"
        f" ld.shared.u32 {n.d[0]}, [{base}+{to}]; ld.shared.u32 {n.d[1]}, [{base}+{to + size - 4}]; }}"
    )


def _copy_value(scene: Scene, at: Words, count: Words) -> list[Words]:
    size, form, to = _copy_parts(scene.k)
    area = scene.memory.areas["shared"]
    source = scene.inputs.view(np.uint8).reshape(-1, size)
    for me in scene.threads:
        data = source[int(at[me]) % len(source)].copy()
        if form == "some":
            data[int(count[me]) % (size + 1) :] = 0
        elif form == "ignored" and count[me] & 1:
            data[:] = 0
        area[me, to : to + size] = data
    words = area.view(np.uint32)
    return [words[:, to // 4].copy(), words[:, (to + size) // 4 - 1].copy()]


Change = Callable[[int, int, int], int]  # was, a, b


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _least(bits: int, was: int, a: int, b: int) -> int:
    return min(was, a, key=lambda each: _signed(each, bits))


def _most(bits: int, was: int, a: int, b: int) -> int:
    return max(was, a, key=lambda each: _signed(each, bits))


def _floating(f: Format, operation: Callable[[float, float], float]) -> Change:
    return lambda was, a, b: f.encode(operation(f.decode(was), f.decode(a)))


def _halves(change: Change) -> Change:
    return lambda was, a, b: change(was & 0xFFFF, a & 0xFFFF, 0) | change(was >> 16, a >> 16, 0) << 16


def _changes() -> dict[str, tuple[int, Change]]:
    """By operation and type: bits, and what becomes of a word."""
    made: dict[str, tuple[int, Change]] = {}
    for bits in (32, 64):
        u, s = f"u{bits}", f"s{bits}"
        made |= {
            f"add.{u}": (bits, lambda was, a, b: was + a),
            f"min.{u}": (bits, lambda was, a, b: min(was, a)),
            f"max.{u}": (bits, lambda was, a, b: max(was, a)),
            f"min.{s}": (bits, partial(_least, bits)),
            f"max.{s}": (bits, partial(_most, bits)),
            f"and.b{bits}": (bits, lambda was, a, b: was & a),
            f"or.b{bits}": (bits, lambda was, a, b: was | a),
            f"xor.b{bits}": (bits, lambda was, a, b: was ^ a),
        }
    for bits in (32, 64, 128):
        made[f"exch.b{bits}"] = bits, lambda was, a, b: a
    for bits in (16, 32, 64, 128):
        made[f"cas.b{bits}"] = bits, lambda was, a, b: a if was == b else was
    made |= {
        "add.s32": (32, lambda was, a, b: was + a),
        "inc.u32": (32, lambda was, a, b: 0 if was >= a else was + 1),
        "dec.u32": (32, lambda was, a, b: a if was == 0 or was > a else was - 1),
        "add.f64": (64, _floating(F64, Arithmetic(F64).add)),
        "add.noftz.f16": (16, _floating(F16, Arithmetic(F16).add)),
        "add.noftz.bf16": (16, _floating(BF16, Arithmetic(BF16).add)),
        "add.noftz.f16x2": (32, _halves(_floating(F16, Arithmetic(F16).add))),
        "add.noftz.bf16x2": (32, _halves(_floating(BF16, Arithmetic(BF16).add))),
    }
    return made


CHANGES = _changes()
NUMBERS = ~(1 << 56) & (1 << 64) - 1  # bits that leave a double no NaN
FLUSHED = _floating(F32, Arithmetic(F32, ftz=True).add), _floating(F32, Arithmetic(F32).add)
OPERATIONS = (*CHANGES, "add.f32")
_ATOMIC_WORDS = {16: 1, 32: 1, 64: 2, 128: 4}


def _atomic_parts(operation: str, k: int) -> tuple[str, bool, bool, int, int]:
    """Space, whether it is generic, whether the old value comes back, bits, where."""
    space = ("shared", "global")[k & 1]
    bits = 32 if operation == "add.f32" else CHANGES[operation][0]
    gives = operation[:3] in ("exc", "cas") or k >> 2 & 1 == 1
    return space, k >> 1 & 1 == 1, gives, bits, k // 16 % (AREA // (bits // 8)) * (bits // 8)


def _atomic_code(operation: str, n: Names) -> str:
    space, generic, gives, bits, at = _atomic_parts(operation, n.k)
    code, base = _address(space, generic, AREA, 0, "area")
    of = "" if generic else f".{space}"
    order = ("", ".relaxed.gpu", ".acq_rel.cta", ".release.sys", ".acquire.gpu")[n.k // 8 % 5]
    if not gives and order[:4] == ".acq":
        order = ""
    type_ = operation.rsplit(".", 1)[1]
    letter = {16: "%h", 32: "%w", 64: "%x", 128: "%y"}[bits]
    lines = [_SCOPE.replace(".b128 %y<1>", ".b128 %y<3>"), code]

    def give(index: int, words: Sequence[str]) -> None:
        name = f"{letter}{index}"
        if bits == 128:
            lines.append(f"mov.b64 %x0, {{{words[0]}, {words[1]}}}; mov.b64 %x1, {{{words[2]}, {words[3]}}};")
            lines.append(f"mov.b128 {name}, {{%x0, %x1}};")
        elif bits == 64:
            lines.append(f"mov.b64 {name}, {{{words[0]}, {words[1]}}};")
        else:
            lines.append(f"mov.b32 {name}, {words[0]};" if bits == 32 else f"cvt.u16.u32 {name}, {words[0]};")

    give(1, n.a[:4])
    if operation == "add.f64":
        # Which NaN comes of one is the host's affair, so both are numbers.
        give(2, n.a[4:])
        for each in ("%x1", "%x2"):
            lines.append(f"and.b64 {each}, {each}, {NUMBERS};")
        lines.append(f"st.volatile{of}.b64 [{base}+{at}], %x2;")
    operands = [f"{letter}1"]
    if operation.startswith("cas"):
        # Half of the time with what is there.
        lines.append(f"ld.{space if not generic else 'volatile'}.b{bits} {letter}2, [{base}+{at}];")
        if n.k >> 10 & 1:
            give(2, n.a[4:])
        operands.insert(0, f"{letter}2")
    floats = {"f32": "%f", "f64": "%g"}.get(type_)
    if floats:
        lines.append(f"mov.b{bits} {floats}1, {letter}1;")
        operands = [f"{floats}1"]
    if gives:
        lines.append(
            f"atom{order}{of}.{operation} {floats or letter}0, [{base}+{at}], {', '.join(operands)};"
        )
        if floats:
            lines.append(f"mov.b{bits} {letter}0, {floats}0;")
    else:
        lines.append(f"red{order}{of}.{operation} [{base}+{at}], {operands[0]};")
        lines.append(f"ld.volatile{of}.b{bits} {letter}0, [{base}+{at}];")
    if bits == 16:
        lines.append(f"cvt.u32.u16 {n.d[0]}, %h0; mov.u32 {n.d[1]}, 0;")
    elif bits == 32:
        lines.append(f"mov.u32 {n.d[0]}, %w0; mov.u32 {n.d[1]}, 0;")
    elif bits == 64:
        lines.append(f"mov.b64 {{{n.d[0]}, {n.d[1]}}}, %x0;")
    else:
        lines.append("mov.b128 {%x0, %x1}, %y0; mov.b64 {%w0, %w1}, %x0; mov.b64 {%w2, %w3}, %x1;")
        lines.append(f"xor.b32 {n.d[0]}, %w0, %w2; xor.b32 {n.d[1]}, %w1, %w3;")
    return " ".join([*lines, "}"])


def _number(words: Sequence[Words], me: int) -> int:
    return sum(int(word[me]) << 32 * index for index, word in enumerate(words))


def _atomic_value(operation: str, scene: Scene, *words: Words) -> list[Words]:
    space, _, gives, bits, at = _atomic_parts(operation, scene.k)
    change = FLUSHED[space == "shared"] if operation == "add.f32" else CHANGES[operation][1]
    area = scene.memory.areas[space]
    results = [scene.nothing(), scene.nothing()]
    whole = (1 << bits) - 1
    for me in scene.threads:
        place = area[me, at : at + bits // 8]
        was = int.from_bytes(place.tobytes(), "little")
        a = _number(words[:4], me) & whole
        b = _number(words[4:], me) & whole if scene.k >> 10 & 1 else was
        if operation == "add.f64":
            a, was = a & NUMBERS, _number(words[4:6], me) & NUMBERS
        new = change(was, a, b) & whole
        place[:] = np.frombuffer(new.to_bytes(bits // 8, "little"), np.uint8)
        seen = was if gives else new
        if bits == 128:
            seen ^= seen >> 64
        results[0][me], results[1][me] = seen & 0xFFFFFFFF, seen >> 32 & 0xFFFFFFFF
    return results


# Of many threads on one word: the order is nobody's.
GATHERED: dict[str, tuple[int, Callable[[int, list[int]], int]]] = {
    "add.u32": (32, lambda was, values: was + sum(values)),
    "add.u64": (64, lambda was, values: was + sum(values)),
    "min.s32": (32, lambda was, values: min([was, *values], key=lambda x: _signed(x, 32))),
    "max.s32": (32, lambda was, values: max([was, *values], key=lambda x: _signed(x, 32))),
    "min.u64": (64, lambda was, values: min([was, *values])),
    "max.u32": (32, lambda was, values: max([was, *values])),
    "and.b32": (32, lambda was, values: was & int(np.bitwise_and.reduce(np.array(values, np.uint64)))),
    "or.b64": (64, lambda was, values: was | int(np.bitwise_or.reduce(np.array(values, np.uint64)))),
    "xor.b32": (32, lambda was, values: was ^ int(np.bitwise_xor.reduce(np.array(values, np.uint64)))),
    "inc.u32": (32, lambda was, values: (was + len(values)) % 41),
}
_PLACES = {name: 8 * index for index, name in enumerate(GATHERED)}
GATHERED_BYTES = 8 * len(GATHERED)


def _gather_code(operation: str, n: Names) -> str:
    bits = GATHERED[operation][0]
    value = n.a[0]
    code = f"{_SCOPE} mov.b32 %w1, {value};"
    if operation == "inc.u32":
        code += " mov.u32 %w1, 40;"
    if bits == 64:
        code += f" mov.b64 %x1, {{{n.a[0]}, {n.a[1]}}};"
    given = "%x1" if bits == 64 else "%w1"
    place = f"gathered+{_PLACES[operation]}"
    if n.k & 1:
        code += " mov.u64 %at, gathered; cvta.shared.u64 %at, %at;"
        code += f" red.{operation} [%at+{_PLACES[operation]}], {given};"
    elif n.k & 2:
        code += f" atom.shared.{operation} {given[:2]}0, [{place}], {given};"
    else:
        code += f" red.shared.{operation} [{place}], {given};"
    return code + " }"


def _gather_value(operation: str, scene: Scene, low: Words, high: Words) -> list[Words]:
    bits, change = GATHERED[operation]
    cell = scene.memory.gathered[operation]
    values = [_number((low, high)[: bits // 32], me) for me in scene.threads]
    cell[0] = np.uint64(change(int(cell[0]), values) & (1 << bits) - 1)
    return []


def _gathered_code(n: Names) -> str:
    return (
        f"bar.sync 0; rem.u32 %t0, {n.a[0]}, {len(GATHERED)}; shl.b32 %t0, %t0, 3; mov.u32 %t1, gathered;"
        f" add.u32 %t0, %t0, %t1; ld.shared.v2.u32 {{%t1, %t2}}, [%t0]; mov.u32 {n.d[0]}, %t1;"
        f" mov.u32 {n.d[1]}, %t2; bar.sync 0;"
    )


def _gathered_value(scene: Scene, which: Words) -> list[Words]:
    cells = np.array([scene.memory.gathered[name][0] for name in GATHERED], np.uint64)
    found = cells[which % len(GATHERED)]
    return [(found & np.uint64(0xFFFFFFFF)).astype(np.uint32), (found >> np.uint64(32)).astype(np.uint32)]


def _vote_of_block(how: str, n: Names) -> str:
    result = f"bar.red.{how}" + (f".u32 {n.d[0]}, 0, %q;" if how == "popc" else ".pred %q, 0, %q;")
    after = "" if how == "popc" else f" selp.u32 {n.d[0]}, 1, 0, %q;"
    return f"and.b32 %t0, {n.a[0]}, 1; setp.ne.u32 %q, %t0, 0; {result}{after}"


def _voted(how: str, scene: Scene, a: Words) -> list[Words]:
    odd = (a & 1).astype(bool)
    found = {"popc": odd.sum(), "and": odd.all(), "or": odd.any()}[how]
    return [np.full(scene.size, int(found), np.uint32)]


def _meeting_code(n: Names) -> str:
    """Each writes, arrives, and reads the next one's when all have."""
    wait = ("test_wait", "try_wait")[n.k & 1]
    return (
        f"{_SCOPE} mov.u32 %w0, %tid.x; mov.u32 %w1, slots; mad.lo.u32 %w2, %w0, 4, %w1; "
        f"st.shared.u32 [%w2], {n.a[0]};"
        " mbarrier.arrive.shared.b64 %x0, [met];"
        f" AGAIN{n.k}: mbarrier.{wait}.shared.b64 %no, [met], %x0; @!%no bra AGAIN{n.k};"
        " mov.u32 %w3, %ntid.x; add.u32 %w0, %w0, 1; rem.u32 %w0, %w0, %w3; mad.lo.u32 %w2, %w0, 4, %w1;"
        f" ld.shared.u32 {n.d[0]}, [%w2]; bar.sync 0; }}"
    )


def _transfer(n: Names, number: int, instruction: str) -> str:
    """The first thread has bytes copied, as many as the barrier then waits for."""
    k = f"{n.k}_{number}"
    return (
        f" bar.sync 0; @%no bra OTHERS{k}; mbarrier.arrive.expect_tx.shared.b64 %x0, [met], {BULK};"
        f" {instruction}, {BULK}, [met]; bra ARRIVED{k};"
        f" OTHERS{k}: mbarrier.arrive.shared.b64 %x0, [met];"
        f" ARRIVED{k}: mbarrier.try_wait.shared.b64 %p, [met], %x0; @!%p bra ARRIVED{k};"
    )


def _bulk_code(sums: bool, n: Names) -> str:
    """Inputs are copied, and with `sums` what was copied is added to itself; all read one word."""
    counted = "mbarrier::complete_tx::bytes"
    copy = f"cp.async.bulk.shared::cluster.global.{counted} [bulk], [%inputs+{n.k % 9 * 16}]"
    add = f"cp.reduce.async.bulk.shared::cluster.shared::cta.{counted}.add.u32 [bulk], [bulk]"
    return (
        f"{_SCOPE} .reg .pred %p; mov.u32 %w0, %tid.x; setp.ne.u32 %no, %w0, 0;"
        + _transfer(n, 0, copy)
        + (_transfer(n, 1, add) if sums else "")
        + f" and.b32 %w1, {n.a[0]}, {BULK // 4 - 1}; mov.u32 %w2, bulk; mad.lo.u32 %w1, %w1, 4, %w2;"
        f" ld.shared.u32 {n.d[0]}, [%w1]; bar.sync 0; }}"
    )


def _bulk(scene: Scene, which: Words) -> list[Words]:
    return [scene.inputs[scene.k % 9 * 4 + which % (BULK // 4)]]


def _spaces_code(n: Names) -> str:
    """Which addresses lie where, a bit for each; fences and hints, which change nothing."""
    places = {"area": "shared", "mine": "local"}
    lines = [f"{_SCOPE} mov.u32 {n.d[0]}, 0;"]
    for index, (symbol, of) in enumerate(places.items()):
        lines.append(f"mov.u64 %x{index}, {symbol}; cvta.{of}.u64 %x{index}, %x{index};")
    lines.append("mov.u64 %x2, %inputs;")
    for index in range(3):
        for bit, space in enumerate(SPACES):
            lines.append(f"isspacep.{space} %no, %x{index}; selp.u32 %w0, {1 << 3 * index + bit}, 0, %no;")
            lines.append(f"or.b32 {n.d[0]}, {n.d[0]}, %w0;")
    lines.append(("fence.acq_rel.gpu;", "membar.cta;", "fence.sc.sys;", "membar.gl;")[n.k & 3])
    lines.append(("prefetch.global.L1 [%inputs];", "prefetchu.L1 [%inputs];")[n.k >> 2 & 1])
    return " ".join([*lines, "}"])


def _spaces(scene: Scene) -> list[Words]:
    return [np.full(scene.size, 1 << 0 | 1 << 3 + 2 | 1 << 6 + 1, np.uint32)]


def _met(scene: Scene, a: Words) -> list[Words]:
    return [np.roll(a, -1)]


def forms() -> list[Form]:
    made = [
        *(
            Form(f"access {s}", "thread", 2, 4, partial(_access_code, s), partial(_access_value, s))
            for s in SPACES
        ),
        *(
            Form(f"row {s}", "thread", 2, 4, partial(_row_code, s), partial(_row_value, s))
            for s in SPACES[:2]
        ),
        Form("read", "thread", 2, 0, _read_code, _read_value),
        Form("cp.async", "thread", 2, 2, _copy_code, _copy_value),
        Form("gathered", "block", 2, 1, _gathered_code, _gathered_value),
        Form("mbarrier", "block", 1, 1, _meeting_code, _met),
        Form("cp.async.bulk", "block", 1, 1, partial(_bulk_code, False), _bulk),
        Form(
            "cp.reduce.async.bulk",
            "block",
            1,
            1,
            partial(_bulk_code, True),
            lambda scene, which: [_bulk(scene, which)[0] * np.uint32(2)],
        ),
        Form("spaces", "thread", 1, 0, _spaces_code, _spaces),
    ]
    for how in ("popc", "and", "or"):
        made.append(Form(f"bar.red.{how}", "block", 1, 1, partial(_vote_of_block, how), partial(_voted, how)))
    for operation in OPERATIONS:
        made.append(
            Form(
                f"atom {operation}",
                "thread",
                2,
                8,
                partial(_atomic_code, operation),
                partial(_atomic_value, operation),
            )
        )
    for operation in GATHERED:
        made.append(
            Form(
                f"gather {operation}",
                "thread",
                0,
                2,
                partial(_gather_code, operation),
                partial(_gather_value, operation),
            )
        )
    return made
