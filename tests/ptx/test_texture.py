"""tex, tld4, txq, suld, sust and sured against a reference of their own (textures.py)."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .driver import CudaError
from .textures import (
    AS_INTEGER,
    BORDER,
    CLAMP,
    CUBEMAP,
    FORMATS,
    LAYERED,
    LINEAR,
    MIRROR,
    NORMALIZED,
    PITCH2D,
    SEAMLESS,
    SURFACE,
    WRAP,
    Array,
    Mipmapped,
    ResourceDesc,
    Surface,
    Texture,
    fetch,
    format_of,
)

COUNT = 64
UNORM_INT8X4, UNORM_INT16X4, SNORM_INT8X4, SNORM_INT16X4 = 0xC2, 0xC5, 0xC8, 0xCB
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
SHAPES = {
    "1d": "{%x0}",
    "2d": "{%x0, %x1}",
    "3d": "{%x0, %x1, %x2, %x2}",
    "a1d": "{%l, %x0}",
    "a2d": "{%l, %x0, %x1, %x1}",
    "cube": "{%x0, %x1, %x2, %x2}",
    "acube": "{%l, %x0, %x1, %x2}",
}


def kernel(name: str, instruction: str, coordinates: str = "f32", result: str = "b32") -> str:
    """A kernel (texture, coordinates [thread][4], layer, level, out [thread][4])."""
    return f"""
.visible .entry {name}(.param .u64 texture, .param .u64 in, .param .u32 layer, .param .f32 level,
                       .param .u64 out)
{{
    .reg .b64 %t, %p, %q; .reg .b32 %i, %l, %r<4>; .reg .f32 %level; .reg .{coordinates} %x<3>;
    .reg .b16 %h<4>;
    mov.u32 %i, %tid.x;
    ld.param.u64 %t, [texture]; ld.param.u64 %p, [in]; ld.param.u64 %q, [out];
    ld.param.u32 %l, [layer]; ld.param.f32 %level, [level];
    mad.wide.u32 %p, %i, 16, %p; mad.wide.u32 %q, %i, 16, %q;
    ld.global.{coordinates} %x0, [%p]; ld.global.{coordinates} %x1, [%p+4];
    ld.global.{coordinates} %x2, [%p+8];
    {instruction}
    st.global.v4.b32 [%q], {{%r0, %r1, %r2, %r3}};
    ret;
}}
"""


RESULT = "{%r0, %r1, %r2, %r3}"
TEXTS = [
    kernel(f"tex_{shape}_{c}", f"tex.{shape}.v4.{d}.{c} {RESULT}, [%t, {at}];", c)
    for shape, at in SHAPES.items()
    for c, d in (("f32", "f32"), ("s32", "u32"))
    if not (c == "s32" and "cube" in shape)
]
TEXTS += [
    kernel("tex_level", f"tex.level.2d.v4.f32.f32 {RESULT}, [%t, {SHAPES['2d']}], %level;"),
    kernel(
        "tex_half",
        "tex.2d.v4.f16.f32 {%h0, %h1, %h2, %h3}, [%t, {%x0, %x1}]; cvt.u32.u16 %r0, %h0;"
        " cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h2; cvt.u32.u16 %r3, %h3;",
    ),
    *(kernel(f"tld4_{c}", f"tld4.{c}.2d.v4.f32.f32 {RESULT}, [%t, {{%x0, %x1}}];") for c in "rgba"),
    kernel(
        "txq",
        "txq.width.b32 %r0, [%t]; txq.height.b32 %r1, [%t]; txq.depth.b32 %r2, [%t];"
        " txq.channel_data_type.b32 %r3, [%t];",
    ),
    kernel("offset", f"tex.2d.v4.f32.f32 {RESULT}, [%t, {SHAPES['2d']}], {{1, -1}};"),
]


@pytest.fixture(scope="module")
def module() -> driver.Module:
    return driver.Module(HEADER + "".join(TEXTS))


def run(
    module: driver.Module, name: str, number: int, at: np.ndarray, layer: int = 0, level: float = 0
) -> np.ndarray:
    """Float results of fetches at coordinates [thread][up to 3]."""
    padded = np.zeros((len(at), 4), at.dtype)
    padded[:, : at.shape[1]] = at
    out = driver.Buffer(np.zeros((len(at), 4), np.float32))
    arguments = (number, driver.Buffer(padded), np.int32(layer), np.float32(level), out)
    module.launch(name, *arguments, block=(len(at),))
    return out.read()


def noise(*shape: int, dtype: str = "f4") -> np.ndarray:
    generator = np.random.default_rng(len(shape) * 1000 + shape[-1])
    if dtype[0] == "f":
        return generator.uniform(-4, 4, shape).astype(dtype)
    return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def places(dimensions: int, most: float) -> np.ndarray:
    """Within and around the texels, on edges and between 256ths."""
    generator = np.random.default_rng(dimensions)
    at = generator.uniform(-most, 2 * most, (COUNT, dimensions)).astype(np.float32)
    at[:16] = np.round(at[:16] * 2) / 2
    at[16:24] += np.float32(1 / 512)
    return at


def expect(got: np.ndarray, texels: np.ndarray, at: np.ndarray, **how: object) -> None:
    for row, place in zip(got, at, strict=True):
        wanted = fetch(texels, [float(each) for each in place], **how)  # type: ignore[arg-type]
        np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=2e-6, atol=1e-7, err_msg=str(place))


@pytest.mark.some(24)
@pytest.mark.parametrize("address", [WRAP, CLAMP, MIRROR, BORDER])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_fetch(
    module: driver.Module, dimensions: int, linear: bool, normalized: bool, address: int
) -> None:
    texels = noise(*(5, 4, 7)[3 - dimensions :], 2)
    texels = texels.reshape((1,) * (4 - texels.ndim) + texels.shape)
    flags = NORMALIZED if normalized else 0
    texture = Texture(Array(texels, dimensions), address=address, filter=int(linear), flags=flags)
    at = places(dimensions, 1.0 if normalized else 7.0)
    got = run(module, f"tex_{dimensions}d_f32", texture.value, at)
    repeats = address in (WRAP, MIRROR) and not normalized
    expect(got, texels, at, linear=linear, normalized=normalized, address=CLAMP if repeats else address)


def test_between_two_texels_that_are_mirrored(module: driver.Module) -> None:
    """The nearest one is the mirror image of what lies there unmirrored, as a GPU has it (Warp's tests)."""
    texels = np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1)
    texture = Texture(Array(texels, 1), address=MIRROR, flags=NORMALIZED)
    at = np.array([[each + way] for way in (-512, 0, 512) for each in (0, 1, 1.25, 1.5, 2)], np.float32)
    assert list(run(module, "tex_1d_f32", texture.value, at)[:, 0]) == [0, 3, 2, 1, 0] * 3


def test_a_fetch_says_that_it_is_resident() -> None:
    instruction = """.reg .pred %in;
    tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}|%in, [%t, {%x0, %x1}]; selp.f32 %r1, 1.0, 0.0, %in;"""
    own = driver.Module(HEADER + kernel("resident", instruction))
    texels = noise(1, 6, 5, 1)
    texture = Texture(Array(texels, 2))
    at = np.array([(x, y) for y in range(6) for x in range(5)], np.float32)
    got = run(own, "resident", texture.value, at)
    assert (got[:, 0] == texels.reshape(-1)).all()
    assert (got[:, 1] == 1).all()


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "f2", "f4"])
def test_formats_become_floats(module: driver.Module, dtype: str, channels: int) -> None:
    texels = noise(1, 6, 5, channels, dtype=dtype)
    texture = Texture(Array(texels, 2), filter=1)
    at = places(2, 5.0)
    got = run(module, "tex_2d_f32", texture.value, at)
    expect(got, texels, at, linear=True)
    assert (got[:, 3] == 1).all() or channels == 4


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_integers_as_they_are(module: driver.Module, dtype: str) -> None:
    texels = noise(1, 6, 5, 4, dtype=dtype)
    texture = Texture(Array(texels, 2), flags=AS_INTEGER)
    at = np.array([(x, y) for y in range(6) for x in range(5)], np.int32)
    got = run(module, "tex_2d_s32", texture.value, at).view(np.int32)
    wanted = texels.reshape(-1, 4).astype(np.int64)
    np.testing.assert_array_equal(got.astype(np.int64) & 0xFFFFFFFF, wanted & 0xFFFFFFFF)


@pytest.mark.parametrize("shape", ["a1d", "a2d"])
def test_layers(module: driver.Module, shape: str) -> None:
    dimensions = int(shape[1])
    texels = noise(3, 4 if dimensions == 2 else 1, 5, 1)
    texture = Texture(Array(texels, dimensions, LAYERED), filter=1)
    at = places(dimensions, 5.0)
    for layer in (-1, 0, 2, 7):
        got = run(module, f"tex_{shape}_f32", texture.value, at, layer)
        expect(got, texels, at, linear=True, layer=layer)


def test_a_cube(module: driver.Module) -> None:
    texels = noise(6, 4, 4, 1)
    cube = Texture(Array(texels, 2, CUBEMAP), filter=0, flags=NORMALIZED)
    several = Texture(Array(np.concatenate([texels * 3, texels]), 2, CUBEMAP | LAYERED), flags=NORMALIZED)
    at = np.random.default_rng(6).uniform(-1, 1, (COUNT, 3)).astype(np.float32)
    # Major axis, the axes of s and t, and their signs.
    faces = [
        (0, 2, 1, -1, -1),
        (0, 2, 1, 1, -1),
        (1, 0, 2, 1, 1),
        (1, 0, 2, 1, -1),
        (2, 0, 1, 1, -1),
        (2, 0, 1, -1, -1),
    ]
    wanted = []
    for v in at:
        major = int(np.argmax(np.abs(v)))
        face = 2 * major + int(v[major] < 0)
        m, s, t, s_sign, t_sign = faces[face]
        u = (s_sign * v[s] / abs(v[m]) + 1) / 2 * 4
        w = (t_sign * v[t] / abs(v[m]) + 1) / 2 * 4
        wanted.append(texels[face, min(int(w), 3), min(int(u), 3), 0])
    np.testing.assert_array_equal(run(module, "tex_cube_f32", cube.value, at)[:, 0], wanted)
    np.testing.assert_array_equal(run(module, "tex_acube_f32", several.value, at, 1)[:, 0], wanted)
    np.testing.assert_array_equal(run(module, "tex_acube_f32", several.value, at, 9)[:, 0], wanted)


def test_edges_of_a_cube(module: driver.Module) -> None:
    """Where faces meet, it is the edge of one of them."""
    texels = np.arange(6, dtype=np.float32).repeat(4).reshape(6, 2, 2, 1)
    cube = Texture(Array(texels, 2, CUBEMAP), filter=0, flags=NORMALIZED)
    at = np.zeros((COUNT, 3), np.float32)
    at[:7] = (1, 1, 0), (-1, 1, 0.25), (1, 0, -1), (0.5, -2, 2), (0, -3, -3), (1, 1, 1), (-1, -1, -1)
    faces = run(module, "tex_cube_f32", cube.value, at)[:7, 0]
    for v, face in zip(at[:7], faces, strict=True):
        along = v[int(face) // 2]
        assert abs(along) == abs(v).max(), (v, face)
        assert (along < 0) == face % 2, (v, face)


def test_a_seamless_cube(module: driver.Module) -> None:
    """What is filtered at an edge is of both faces that meet there, if the program wants that."""
    texels = noise(6, 4, 4, 1)
    at = np.zeros((COUNT, 3), np.float32)
    # On the edges of +x with +z, +y and -y, and of -z with -y, where a row's texels have their centres.
    at[:4] = (1, 0.25, 1), (1, 1, 0.75), (1, -1, 0.75), (-0.25, -1, -1)
    places = [(0, 1, 0), (0, 0, 0), (0, 3, 0), (5, 3, 2)], [(4, 1, 3), (2, 3, 3), (3, 0, 3), (3, 3, 1)]
    one, other = ([texels[place][0] for place in side] for side in places)
    for flags, wanted in ((NORMALIZED, None), (NORMALIZED | SEAMLESS, (np.array(one) + other) / 2)):
        cube = Texture(Array(texels, 2, CUBEMAP), filter=1, flags=flags)
        got = run(module, "tex_cube_f32", cube.value, at)[:4, 0]
        if wanted is not None:
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        else:
            assert all(value in (a, b) for value, a, b in zip(got, one, other, strict=True))
    # An instruction of another shape knows no faces: a layer in front of the first is that, not host memory.
    at[:] = -1
    at[:, 2] = -np.arange(COUNT) / COUNT
    assert (run(module, "tex_3d_f32", cube.value, at)[:, 0] == texels[0, 0, 0]).all()


def test_levels(module: driver.Module) -> None:
    levels = [noise(1, 8 >> n, 16 >> n, 1) for n in range(4)]
    mipmapped = Mipmapped(levels)
    point = Texture(mipmapped, filter=1, flags=NORMALIZED, most=9.0)
    blended = Texture(mipmapped, filter=1, flags=NORMALIZED, mip_filter=1, most=2.5)
    at = places(2, 1.0)
    for level, texels in enumerate(levels):
        got = run(module, "tex_level", point.value, at, level=level + 0.25)
        expect(got, texels, at, linear=True, normalized=True)
    lower, upper = (
        np.array([fetch(each, [float(x) for x in place], CLAMP, True, True)[0] for place in at])
        for each in levels[1:3]
    )
    got = run(module, "tex_level", blended.value, at, level=1.25)
    np.testing.assert_allclose(got[:, 0], lower * 0.75 + upper * 0.25, rtol=2e-6, atol=1e-6)
    got = run(module, "tex_level", blended.value, at, level=7)
    expected = np.array([fetch(levels[3], [float(x) for x in place], CLAMP, True, True)[0] for place in at])
    np.testing.assert_allclose(got[:, 0], (upper + expected) / 2, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("component", range(4))
def test_gather(module: driver.Module, component: int) -> None:
    texels = noise(1, 5, 6, 4)
    texture = Texture(Array(texels, 2))
    at = np.random.default_rng(1).uniform(1, 4, (COUNT, 2)).astype(np.float32)
    got = run(module, f"tld4_{'rgba'[component]}", texture.value, at)
    for row, (x, y) in zip(got, at, strict=True):
        i, j = int(np.floor(x - 0.5 + 1 / 512)), int(np.floor(y - 0.5 + 1 / 512))
        wanted = [texels[0, j + b, i + a, component] for a, b in ((0, 1), (1, 1), (1, 0), (0, 0))]
        np.testing.assert_array_equal(row, wanted)


def test_halves_offsets_and_queries(module: driver.Module) -> None:
    texels = noise(1, 5, 6, 4)
    texture = Texture(Array(texels, 2))
    at = np.array([(2.5, 3.5)], np.float32)
    halves = run(module, "tex_half", texture.value, at).view(np.uint32)[0].astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(halves, texels[0, 3, 2].astype(np.float16))
    np.testing.assert_array_equal(run(module, "offset", texture.value, at)[0], texels[0, 2, 3])
    assert run(module, "txq", texture.value, at).view(np.uint32)[0].tolist() == [6, 5, 1, 0x10DE]


def test_memory_as_a_texture(module: driver.Module) -> None:
    texels = noise(1, 1, 100, 1)
    buffer = driver.Buffer(texels)
    linear = ResourceDesc(LINEAR)
    linear.resource.memory.pointer, linear.resource.memory.format = buffer.address, format_of(texels)
    linear.resource.memory.channels, linear.resource.memory.width = 1, texels.nbytes
    at = np.array([[-1], [0], [99], [100], [1 << 30]], np.int32)
    texture = Texture(linear)
    got = run(module, "tex_1d_s32", texture.value, at)[:, 0]
    np.testing.assert_array_equal(got, [0, texels[0, 0, 0, 0], texels[0, 0, 99, 0], 0, 0])
    rows = noise(1, 4, 32, 1)
    pitched = ResourceDesc(PITCH2D)
    memory, held = pitched.resource.memory, driver.Buffer(rows)
    memory.pointer, memory.format, memory.channels = held.address, format_of(rows), 1
    memory.width, memory.height, memory.pitch = 20, 4, 128
    at = places(2, 20.0)
    texture = Texture(pitched, filter=1)
    expect(run(module, "tex_2d_f32", texture.value, at), rows[:, :, :20], at, linear=True)


@pytest.mark.parametrize("number", [0, 60000, 1 << 16, 1 << 40, (1 << 64) - 1])
def test_a_handle_that_is_none(number: int) -> None:
    with driver.own_context():
        own = driver.Module(HEADER + "".join(TEXTS))
        with pytest.raises(CudaError) as error:
            run(own, "tex_2d_f32", number, np.zeros((1, 2), np.float32))
    assert error.value.status == driver.ILLEGAL_ADDRESS


def surface_kernel(name: str, instructions: str) -> str:
    return f"""
.visible .entry {name}(.param .u64 surface, .param .u64 out, .param .s32 dx)
{{
    .reg .b64 %s, %q; .reg .b32 %i, %x, %y, %z, %v<4>; .reg .b16 %h; .reg .s32 %dx;
    ld.param.u64 %s, [surface]; ld.param.u64 %q, [out]; ld.param.s32 %dx, [dx];
    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;
    mov.u32 %i, %ntid.x; mad.lo.u32 %i, %i, %y, %x; mul.wide.u32 %q, %i, 4;
    {{ .reg .b64 %o; ld.param.u64 %o, [out]; add.u64 %q, %q, %o; }}
    add.s32 %x, %x, %dx; shl.b32 %x, %x, 2;
    {instructions}
    ret;
}}
"""


SURFACE_TEXTS = [
    surface_kernel(f"load_{mode}", f"suld.b.2d.b32.{mode} %v0, [%s, {{%x, %y}}]; st.global.b32 [%q], %v0;")
    for mode in ("trap", "clamp", "zero")
]
SURFACE_TEXTS += [
    surface_kernel(f"store_{mode}", f"ld.global.b32 %v0, [%q]; sust.b.2d.b32.{mode} [%s, {{%x, %y}}], %v0;")
    for mode in ("trap", "clamp", "zero")
]
SURFACE_TEXTS += [
    surface_kernel("deep", "ld.global.b32 %v0, [%q]; sust.b.3d.b32.trap [%s, {%x, %y, %z, %z}], %v0;"),
    surface_kernel("layer", "ld.global.b32 %v0, [%q]; sust.b.a2d.b32.trap [%s, {%z, %x, %y, %y}], %v0;"),
    surface_kernel("reduce", "mov.u32 %x, 4; mov.u32 %v0, 3; sured.b.add.1d.u32.trap [%s, {%x}], %v0;"),
    *(
        surface_kernel(
            f"least_{way}_{type_}",
            f"mov.u32 %x, {x}; neg.s32 %v0, %i; cvt.s64.s32 %q, %v0; sured.{way}.min.1d.{type_}.trap"
            f" [%s, {{%x}}], {'%q' if type_.endswith('64') else '%v0'};",
        )
        for way, type_, x in (("b", "s64", 16), ("p", "b32", 2), ("p", "b64", 2))
    ),
    surface_kernel(
        "formatted",
        "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%q];"
        " sust.p.1d.v4.b32.trap [%s, {%i}], {%v0, %v1, %v2, %v3};",
    ),
    surface_kernel(
        "size",
        "suq.width.b32 %v0, [%s]; suq.height.b32 %v1, [%s]; add.u32 %v0, %v0, %v1; st.global.b32 [%q], %v0;",
    ),
]


@pytest.fixture(scope="module")
def surfaces() -> driver.Module:
    return driver.Module(HEADER + "".join(SURFACE_TEXTS))


def test_surfaces(surfaces: driver.Module) -> None:
    texels = noise(1, 4, 8, 1, dtype="u4")
    array = Array(texels, 2, SURFACE)
    surface = Surface(array)
    out = driver.Buffer(np.zeros((4, 8), np.uint32))
    surfaces.launch("load_trap", surface.value, out, np.int32(0), block=(8, 4))
    np.testing.assert_array_equal(out.read(), texels[0, :, :, 0])
    surfaces.launch("load_clamp", surface.value, out, np.int32(3), block=(8, 4))
    np.testing.assert_array_equal(out.read(), texels[0, :, np.minimum(np.arange(8) + 3, 7), 0].T)
    surfaces.launch("load_zero", surface.value, out, np.int32(-3), block=(8, 4))
    wanted = np.pad(texels[0, :, :, 0], ((0, 0), (3, 0)))[:, :8]
    np.testing.assert_array_equal(out.read(), wanted)
    fresh = noise(4, 8, dtype="u4")
    out.write(fresh)
    surfaces.launch("store_zero", surface.value, out, np.int32(2), block=(8, 4))
    np.testing.assert_array_equal(array.read()[0, :, 2:, 0], fresh[:, :6])
    np.testing.assert_array_equal(array.read()[0, :, :2, 0], texels[0, :, :2, 0])


@pytest.mark.parametrize(
    ("texel_format", "dtype", "wanted"),
    [
        (UNORM_INT8X4, np.uint8, [128, 255, 0, 64]),
        (SNORM_INT8X4, np.int8, [64, 127, -127, 32]),
        (UNORM_INT16X4, np.uint16, [32768, 65535, 0, 16384]),
        (SNORM_INT16X4, np.int16, [16384, 32767, -32767, 8192]),
        (FORMATS["f2"], np.float16, [0.5, 3, -2, 0.25]),
        (FORMATS["f4"], np.float32, [0.5, 3, -2, 0.25]),
    ],
)
def test_formatted_stores(
    surfaces: driver.Module, texel_format: int, dtype: type, wanted: list[float]
) -> None:
    array = Array(np.zeros((1, 1, 1, 4), dtype), 1, SURFACE, texel_format)
    surface = Surface(array)
    surfaces.launch(
        "formatted", surface.value, driver.Buffer(np.array([0.5, 3, -2, 0.25], np.float32)), np.int32(0)
    )
    assert array.read().ravel().tolist() == wanted


def test_deep_and_layered_surfaces(surfaces: driver.Module) -> None:
    out = driver.Buffer(np.arange(12, dtype=np.uint32).reshape(3, 4))
    for name, flags in (("deep", SURFACE), ("layer", SURFACE | LAYERED)):
        array = Array(np.zeros((2, 3, 4, 1), np.uint32), 3 if name == "deep" else 2, flags)
        surface = Surface(array)
        surfaces.launch(name, surface.value, out, np.int32(0), block=(4, 3, 2))
        np.testing.assert_array_equal(array.read()[:, :, :, 0], [np.arange(12).reshape(3, 4)] * 2)


def test_reductions_and_queries(surfaces: driver.Module) -> None:
    array = Array(np.zeros((1, 1, 5, 1), np.uint32), 1, SURFACE)
    out = driver.Buffer(np.zeros(512, np.uint32))
    surface = Surface(array)
    surfaces.launch("reduce", surface.value, out, np.int32(0), grid=(3,), block=(64,))
    assert array.read().ravel().tolist() == [0, 3 * 3 * 64, 0, 0, 0]
    surfaces.launch("size", surface.value, out, np.int32(0))
    assert out.read()[0] == 5 + 1


@pytest.mark.parametrize(
    ("name", "dtype", "least"),
    [
        ("least_b_s64", np.int64, -63),
        ("least_p_b32", np.int32, -63),
        ("least_p_b32", np.uint32, 0),
        ("least_p_b64", np.int64, -63),
        ("least_p_b64", np.uint64, 0),
    ],
)
def test_the_least_of_signed_numbers(surfaces: driver.Module, name: str, dtype: type, least: int) -> None:
    """The instruction says the sign, or by texels the surface; a number of 64 bits is two channels."""
    numbers: np.ndarray = np.full(5, 7, dtype)
    channels = numbers.view(np.int32 if numbers.dtype.kind == "i" else np.uint32).reshape(1, 1, 5, -1)
    array = Array(channels, 1, SURFACE)
    surface = Surface(array)
    surfaces.launch(name, surface.value, driver.Buffer(np.zeros(64, np.uint32)), np.int32(0), block=(64,))
    assert array.read().view(dtype).ravel().tolist() == [7, 7, least, 7, 7]


def refused(name: str, texture: bool) -> int:
    """The error of a kernel that is given a texture or a surface, and goes one texel too far."""
    with driver.own_context():
        own = driver.Module(HEADER + "".join(SURFACE_TEXTS))
        array = Array(noise(1, 4, 8, 1, dtype="u4"), 2, SURFACE)
        seen = Texture(array) if texture else Surface(array)
        out = driver.Buffer(np.zeros(64, np.uint32))
        seen.keep = array.keep = True  # their context's end ends them
        with pytest.raises(CudaError) as error:
            own.launch(name, seen.value, out, np.int32(1), block=(8, 4))
    return error.value.status


def test_beyond_the_edge_of_a_surface() -> None:
    assert refused("load_trap", texture=False) == driver.LAUNCH_FAILED


def test_a_texture_is_no_surface() -> None:
    assert refused("load_zero", texture=True) == driver.ILLEGAL_ADDRESS
