"""Forms of textures and surfaces. Textures are fetched where one texel is all there is to it; a surface has a
texel for each thread of the launch, which is its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial

import numpy as np

from .form import HANDLES, MOST_THREADS, Form, Names, Scene, Words, mix, mixed
from .textures import (
    AS_INTEGER,
    CUBEMAP,
    LAYERED,
    NORMALIZED,
    SURFACE,
    Array,
    Mipmapped,
    Surface,
    Texture,
    fill,
)

_RNG = np.random.default_rng(23)
SIDE = 8


def _noise(*shape: int, dtype: str = "u4") -> np.ndarray:
    if dtype == "f4":
        return _RNG.uniform(-4, 4, shape).astype("f4")
    return _RNG.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


# name: texels [z, y, x, channel], and how many dimensions the array has
TEXELS: dict[str, tuple[np.ndarray, int, int]] = {
    "1d": (_noise(1, 1, SIDE, 4), 1, 0),
    "2d": (_noise(1, SIDE, SIDE, 4, dtype="u1"), 2, 0),
    "3d": (_noise(SIDE, SIDE, SIDE, 2, dtype="u2"), 3, 0),
    "a1d": (_noise(SIDE, 1, SIDE, 1), 1, LAYERED),
    "a2d": (_noise(SIDE, SIDE, SIDE, 4), 2, LAYERED),
}
FLOATS = _noise(1, SIDE, SIDE, 4, dtype="f4")
CUBE = _noise(6, 4, 4, 1, dtype="f4")
LEVELS = [_noise(1, SIDE >> n, SIDE >> n, 4, dtype="f4") for n in range(3)]


@dataclass(frozen=True)
class Image:
    """A surface: a thread's texel is at its number, the rest of the coordinates anywhere."""

    shape: str
    dtype: str
    channels: int

    @property
    def size(self) -> int:
        return int(self.dtype[1]) * self.channels

    @property
    def name(self) -> str:
        return f"{self.shape} {self.dtype} {self.channels}"

    def extents(self) -> tuple[int, int]:
        """Rows and slices."""
        return {"1d": (1, 1), "2d": (2, 1), "3d": (2, 2), "a1d": (1, 2), "a2d": (2, 2)}[self.shape]


IMAGES = [
    Image("1d", "u4", 1),
    Image("1d", "u1", 4),
    Image("2d", "u4", 4),
    Image("2d", "u2", 2),
    Image("3d", "u4", 2),
    Image("a1d", "u2", 1),
    Image("a2d", "u1", 1),
    Image("a2d", "u4", 1),
]
_FETCHED = (*TEXELS, "floats", "cube", "levels")
_PLACE = {name: HANDLES + 8 * index for index, name in enumerate((*_FETCHED, *(i.name for i in IMAGES)))}


@functools.cache
def _made() -> tuple[list[int], dict[str, Array]]:
    """Handles, and the surfaces' arrays; to the end of the process."""
    held: list[Array | Texture | Surface | Mipmapped] = []
    numbers = []

    def texture(array: Array | Mipmapped, flags: int) -> None:
        made = Texture(array, flags=flags, most=9.0)
        held.extend([array, made])
        numbers.append(made.value)

    for texels, dimensions, flags in TEXELS.values():
        texture(Array(texels, dimensions, flags), AS_INTEGER)
    texture(Array(FLOATS, 2), 0)
    texture(Array(CUBE, 2, CUBEMAP), NORMALIZED)
    texture(Mipmapped(LEVELS), NORMALIZED)
    surfaces = {}
    for image in IMAGES:
        rows, slices = image.extents()
        flags = SURFACE | (LAYERED if image.shape[0] == "a" else 0)
        texels = np.zeros((slices, rows, MOST_THREADS, image.channels), image.dtype)
        dimensions = int(image.shape[-2])
        surfaces[image.name] = Array(texels, dimensions, flags)
        made = Surface(surfaces[image.name])
        held += [surfaces[image.name], made]
        numbers.append(made.value)
    for each in held:
        each.keep = True
    return numbers, surfaces


def handles() -> np.ndarray:
    """Of all, with nothing on the surfaces."""
    numbers, surfaces = _made()
    for image in IMAGES:
        array = surfaces[image.name]
        fill(array.handle, np.zeros(array.shape, image.dtype))
    return np.array(numbers, np.uint64)


def empty() -> dict[str, np.ndarray]:
    """What surfaces hold at first: [slice][row][thread of the launch][byte]."""
    return {
        image.name: np.zeros((*image.extents()[::-1], MOST_THREADS, image.size), np.uint8) for image in IMAGES
    }


_SCOPE = (
    "{ .reg .b64 %image, %wide<2>; .reg .b32 %c<6>, %e<8>; .reg .b16 %h<4>; .reg .f32 %g<4>; .reg .pred %no;"
)


def _handle(name: str) -> str:
    return f"ld.global.u64 %image, [%inputs+{_PLACE[name]}];"


_COORDINATES = {
    "1d": "{%c0}",
    "2d": "{%c0, %c1}",
    "3d": "{%c0, %c1, %c2, %c2}",
    "a1d": "{%c3, %c0}",
    "a2d": "{%c3, %c0, %c1, %c1}",
}


def _fetch_code(shape: str, n: Names) -> str:
    """At whole numbers from -4 to 11."""
    lines = [_SCOPE, _handle(shape)]
    for index in range(3):
        lines.append(f"and.b32 %c{index}, {n.a[index]}, 15; sub.s32 %c{index}, %c{index}, 4;")
    lines.append(f"and.b32 %c3, {n.a[3]}, 7;")
    level = ".level" if n.k & 1 else ""
    lines.append("mov.u32 %c4, 0;")
    lines.append(
        f"tex{level}.{shape}.v4.u32.s32 {{%e0, %e1, %e2, %e3}}, [%image, {_COORDINATES[shape]}]"
        f"{', %c4' if level else ''};"
    )
    count = TEXELS[shape][0].shape[3]
    return "\n    ".join([*lines, mixed(n.d, [f"%e{each}" for each in range(count)]), "}"])


def _fetched(shape: str, scene: Scene, *words: Words) -> list[Words]:
    texels, dimensions, flags = TEXELS[shape]
    x, y, z = ((word & 15).astype(np.int64) - 4 for word in words[:3])
    x, y, z = (np.clip(each, 0, SIDE - 1) for each in (x, y, z))
    y = y if dimensions > 1 else 0 * y
    z = (words[3] & 7).astype(np.int64) if flags else z if dimensions > 2 else 0 * z
    return mix(2, [each.astype(np.uint32) for each in texels[z, y, x].T])


def _eighths(to: str, a: str) -> str:
    """A float between -2 and 10, in eighths and a sixteenth."""
    return f"rem.u32 %c4, {a}, 96; cvt.rn.f32.u32 {to}, %c4; fma.rn.f32 {to}, {to}, 0f3E000000, 0fBFF80000;"


def _eighth(a: Words) -> np.ndarray:
    return np.asarray((a % 96).astype(np.float64) / 8 - 1.9375)


def _at_eighths(n: Names, fetch: str, back: str) -> str:
    """Code that fetches texels of the image of floats at the place that two words name, and mixes them."""
    return "\n    ".join(
        [
            _SCOPE,
            _handle("floats"),
            ".reg .f32 %at<2>;",
            _eighths("%at0", n.a[0]),
            _eighths("%at1", n.a[1]),
            fetch,
            *(back.format(each) for each in range(4)),
            mixed(n.d, [f"%e{each}" for each in range(4)]),
            "}",
        ]
    )


_WORD = "mov.b32 %e{0}, %g{0};"


def _float_code(n: Names) -> str:
    half = n.k & 1
    to = "{%h0, %h1, %h2, %h3}" if half else "{%g0, %g1, %g2, %g3}"
    fetch = f"tex.2d.v4.{'f16' if half else 'f32'}.f32 {to}, [%image, {{%at0, %at1}}];"
    return _at_eighths(n, fetch, "cvt.u32.u16 %e{0}, %h{0};" if half else _WORD)


def _nearest(a: Words) -> np.ndarray:
    return np.asarray(np.clip(np.floor(_eighth(a)), 0, SIDE - 1), np.int64)


def _floats(scene: Scene, x: Words, y: Words) -> list[Words]:
    texels = FLOATS[0, _nearest(y), _nearest(x)]
    if scene.k & 1:
        bits = np.ascontiguousarray(texels.astype(np.float16)).view(np.uint16).astype(np.uint32)
    else:
        bits = np.ascontiguousarray(texels).view(np.uint32)
    return mix(2, list(bits.T))


def _gather_code(n: Names) -> str:
    fetch = f"tld4.{'rgba'[n.k & 3]}.2d.v4.f32.f32 {{%g0, %g1, %g2, %g3}}, [%image, {{%at0, %at1}}];"
    return _at_eighths(n, fetch, _WORD)


def _four(scene: Scene, x: Words, y: Words) -> list[Words]:
    i, j = (np.floor(_eighth(each) - 0.5).astype(np.int64) for each in (x, y))
    found = []
    for across, down in ((0, 1), (1, 1), (1, 0), (0, 0)):
        row, column = (np.clip(each, 0, SIDE - 1) for each in (j + down, i + across))
        found.append(np.ascontiguousarray(FLOATS[0, row, column, scene.k & 3]).view(np.uint32))
    return mix(2, found)


def _signed(to: str, a: str, axis: int) -> str:
    """A float, as many 1024ths as no other axis has, between -8 and 8: PTX leaves open which of two longest
    axes it is, and no direction is on an edge."""
    return (
        f"and.b32 %c4, {a}, 0x3ff0; sub.s32 %c4, %c4, {8191 - 2 * axis}; cvt.rn.f32.s32 {to}, %c4;"
        f" mul.rn.f32 {to}, {to}, 0f3A800000;"
    )


def _cube_code(n: Names) -> str:
    parts = [_SCOPE, _handle("cube"), ".reg .f32 %at<3>;"]
    parts += [_signed(f"%at{each}", n.a[each], each) for each in range(3)]
    parts.append("tex.cube.v4.f32.f32 {%g0, %g1, %g2, %g3}, [%image, {%at0, %at1, %at2, %at2}];")
    return "\n    ".join([*parts, f"mov.b32 {n.d[0]}, %g0;", "}"])


_FACES = (
    (0, 2, 1, -1, -1),
    (0, 2, 1, 1, -1),
    (1, 0, 2, 1, 1),
    (1, 0, 2, 1, -1),
    (2, 0, 1, 1, -1),
    (2, 0, 1, -1, -1),
)


def _cube(scene: Scene, *words: Words) -> list[Words]:
    result = scene.nothing()
    for me in scene.threads:
        v = [(int(word[me] & 0x3FF0) - 8191 + 2 * axis) / 1024 for axis, word in enumerate(words)]
        sizes = [abs(each) for each in v]
        major = sizes.index(max(sizes))
        m, s, t, s_sign, t_sign = _FACES[2 * major + (v[major] < 0)]
        u = (s_sign * v[s] / sizes[m] + 1) / 2 * 4
        w = (t_sign * v[t] / sizes[m] + 1) / 2 * 4
        texel = CUBE[2 * major + (v[major] < 0), min(int(w), 3), min(int(u), 3), 0]
        result[me] = texel.view(np.uint32)
    return [result]


def _level_code(n: Names) -> str:
    """At eighths of the whole, of a level."""
    parts = [_SCOPE, _handle("levels"), ".reg .f32 %at<3>;"]
    for each in range(2):
        parts.append(
            f"and.b32 %c4, {n.a[each]}, 7; cvt.rn.f32.u32 %at{each}, %c4; "
            f"fma.rn.f32 %at{each}, %at{each}, 0f3E000000, 0f3D800000;"
        )
    parts.append(f"rem.u32 %c4, {n.a[2]}, 3; cvt.rn.f32.u32 %at2, %c4;")
    parts.append("tex.level.2d.v4.f32.f32 {%g0, %g1, %g2, %g3}, [%image, {%at0, %at1}], %at2;")
    parts += [f"mov.b32 %e{each}, %g{each};" for each in range(4)]
    return "\n    ".join([*parts, mixed(n.d, [f"%e{each}" for each in range(4)]), "}"])


def _level(scene: Scene, x: Words, y: Words, level: Words) -> list[Words]:
    texels = np.zeros((scene.size, 4), np.float32)
    for me in range(scene.size):
        of = int(level[me] % 3)
        texels[me] = LEVELS[of][0, int(y[me] & 7) >> of, int(x[me] & 7) >> of]
    return mix(2, list(np.ascontiguousarray(texels).view(np.uint32).T))


def _vectors(image: Image, k: int) -> tuple[str, int, int]:
    """Modifiers of an access of a whole texel, the elements and bits of each."""
    most = [
        bits for bits in (8, 16, 32, 64) if image.size * 8 % bits == 0 and image.size * 8 // bits in (1, 2, 4)
    ]
    bits = most[k % len(most)]
    count = image.size * 8 // bits
    return (f".v{count}" if count > 1 else "") + f".b{bits}", count, bits


def _surface_at(image: Image, n: Names) -> str:
    """A thread's own texel, in bytes, and a row and a slice that registers say."""
    return "\n    ".join(
        [
            _SCOPE,
            _handle(image.name),
            "mov.u32 %c0, %ctaid.x; mov.u32 %c1, %ntid.x; mov.u32 %c2, %tid.x; "
            "mad.lo.u32 %c0, %c0, %c1, %c2;",
            f"mul.lo.u32 %c0, %c0, {image.size}; and.b32 %c1, {n.a[0]}, {image.extents()[0] - 1};"
            f" and.b32 %c2, {n.a[1]}, {image.extents()[1] - 1}; mov.u32 %c3, %c2;",
        ]
    )


def _elements(bits: int, count: int) -> list[str]:
    return [{8: "%h", 16: "%h", 32: "%e", 64: "%wide"}[bits] + str(each) for each in range(count)]


def _vector(names: list[str]) -> str:
    return f"{{{', '.join(names)}}}" if len(names) > 1 else names[0]


_BEYOND = (".trap", ".clamp", ".zero")


def _write_code(image: Image, n: Names) -> str:
    modifiers, count, bits = _vectors(image, n.k)
    names = _elements(bits, count)
    lines = [_surface_at(image, n)]
    for index, name in enumerate(names):
        if bits == 64:
            lines.append(f"mov.b64 {name}, {{{n.a[2 + 2 * index]}, {n.a[3 + 2 * index]}}};")
        else:
            lines.append(f"{'mov.b32' if bits == 32 else 'cvt.u16.u32'} {name}, {n.a[2 + index]};")
    lines.append(
        f"sust.b.{image.shape}{modifiers}{_BEYOND[n.k >> 4 & 1]}"
        f" [%image, {_COORDINATES[image.shape]}], {_vector(names)};"
    )
    return "\n    ".join([*lines, "}"])


def _own(image: Image, scene: Scene, me: int, row: Words, part: Words) -> np.ndarray:
    rows, slices = image.extents()
    texels = scene.memory.surfaces[image.name]
    own: np.ndarray = texels[part[me] & slices - 1, row[me] & rows - 1, scene.block * scene.size + me]
    return own


def _written(image: Image, scene: Scene, row: Words, part: Words, *words: Words) -> list[Words]:
    _, count, bits = _vectors(image, scene.k)
    for me in scene.threads:
        if bits == 64:
            given = [int(words[2 * each][me]) | int(words[2 * each + 1][me]) << 32 for each in range(count)]
        else:
            given = [int(words[each][me]) & (1 << bits) - 1 for each in range(count)]
        data = b"".join(each.to_bytes(bits // 8, "little") for each in given)
        _own(image, scene, me, row, part)[:] = np.frombuffer(data, np.uint8)
    return []


def _read_code(image: Image, n: Names) -> str:
    """Some read in front of the surface, where there is nothing, or its first texel."""
    modifiers, count, bits = _vectors(image, n.k)
    names = _elements(bits, count)
    lines = [_surface_at(image, n)]
    if n.k >> 6 & 1:
        lines.append(
            f"and.b32 %c4, {n.a[2]}, 1; setp.ne.u32 %no, %c4, 0; @%no mov.u32 %c0, -{16 * image.size};"
        )
    lines.append(
        f"suld.b.{image.shape}{modifiers}.zero {_vector(names)}, [%image, {_COORDINATES[image.shape]}];"
    )
    words = []
    for index, name in enumerate(names):
        if bits == 64:
            lines.append(f"mov.b64 {{%e{2 * index}, %e{2 * index + 1}}}, {name};")
            words += [f"%e{2 * index}", f"%e{2 * index + 1}"]
        else:
            if bits < 32:
                lines.append(f"cvt.u32.u16 %e{index}, {name};")
            words.append(f"%e{index}")
    return "\n    ".join([*lines, mixed(n.d, words), "}"])


def _read(image: Image, scene: Scene, row: Words, part: Words, beyond: Words) -> list[Words]:
    _, _, bits = _vectors(image, scene.k)
    found = np.zeros((scene.size, image.size), np.uint8)
    for me in scene.threads:
        if not (scene.k >> 6 & 1 and beyond[me] & 1):
            found[me] = _own(image, scene, me, row, part)
    if bits >= 32:
        return mix(2, list(found.view(np.uint32).T))
    return mix(2, list(found.view(f"u{bits // 8}").astype(np.uint32).T))


def _reduce_code(n: Names) -> str:
    image = IMAGES[0]
    how = ("add.1d.u32", "min.1d.s32", "max.1d.u32", "and.1d.b32", "or.1d.b32")[n.k % 5]
    return f"{_surface_at(image, n)}\n    sured.b.{how}.trap [%image, {{%c0}}], {n.a[2]}; }}"


def _reduced(scene: Scene, row: Words, part: Words, a: Words) -> list[Words]:
    for me in scene.threads:
        own = _own(IMAGES[0], scene, me, row, part)
        was, given = int(own.view(np.uint32)[0]), int(a[me])
        result = (
            was + given,
            min(was, given, key=lambda each: each - (each >> 31 << 32)),
            max(was, given),
            was & given,
            was | given,
        )[scene.k % 5]
        own[:] = np.frombuffer((result & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8)
    return []


def forms() -> list[Form]:
    made = [
        Form(f"tex.{shape}", "thread", 2, 4, partial(_fetch_code, shape), partial(_fetched, shape))
        for shape in TEXELS
    ]
    made += [
        Form("tex of floats", "thread", 2, 2, _float_code, _floats),
        Form("tld4", "thread", 2, 2, _gather_code, _four),
        Form("tex.cube", "thread", 1, 3, _cube_code, _cube),
        Form("tex.level", "thread", 2, 3, _level_code, _level),
        Form("sured", "thread", 0, 3, _reduce_code, _reduced),
    ]
    for image in IMAGES:
        made.append(
            Form(f"sust {image.name}", "thread", 0, 6, partial(_write_code, image), partial(_written, image))
        )
        made.append(
            Form(f"suld {image.name}", "thread", 2, 3, partial(_read_code, image), partial(_read, image))
        )
    return made
