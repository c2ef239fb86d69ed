"""Images made to cost much: what they may take is bounded, and what is read is read once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpuferry.native.simdevice.compiler import images, limits
from gpuferry.native.simdevice.compiler.errors import INVALID_IMAGE, ImageError
from gpuferry.native.simdevice.ptx import PtxError, check_bodies, parse

from tests.helpers import paths

from . import driver
from .ptx import HEADER, entry, kernel, store
from .test_fatbin import ZSTD, container, fat_entry

# Each took a time that grew with the square of its length, or a higher power.
SLOW = {
    "newlines": "\n" * 200_000,
    "comments that do not end": "/*" * 100_000,
    "comments": "/**/" * 50_000,
    "texts that do not end": '"\\' * 100_000,
    "texts": '"a"' * 60_000,
    "declarations": ".reg " * 40_000,
    "moves": "mov.b64 " * 25_000,
    "moves and blanks": ("mov.b64" + " " * 1000) * 200,
    "targets": ".calltargets" * 17_000,
    "variables": ".reg .b32 %r<2>;" * 12_000,
    "braces": "{" * 100_000,
    "shared variables": ".shared " * 30_000,
    "a name": "add.u32 %r" + "1" * 100_000 + ", %r2;",
    "registers in use": ".reg .b32 %r<2>; add.u32 %r1, %z, 1;" * 5_000,
    "labels": "a" * 100_000 + "\n" + " " * 100_000,
    "functions": ".func a() {ret;}" * 12_000,
    "braces of an initialiser": f".global .u8 a{'[1]' * 150_000} = {'{' * 150_000}1{'}' * 150_000};",
}
# Of these, so many that the square of them takes the test's whole time take some seconds.
SLOWER = {"addresses in an initialiser": ".global .u64 a[] = {" + "a," * 350_000 + "a};"}


def read(text: str) -> None:
    """As far as an image is read when it is loaded."""
    module = parse(text)
    _ = module.kernels, module.variables
    check_bodies(module)


@pytest.mark.some(12)
@pytest.mark.parametrize("place", ["in front", "in a kernel"])
@pytest.mark.parametrize("name", [*SLOW, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOWER)])
def test_reading_takes_as_long_as_the_text(name: str, place: str) -> None:
    """What grew with the square would take the test's whole time."""
    text = {**SLOW, **SLOWER}[name]
    whole = HEADER + text if place == "in front" else kernel(text)
    with contextlib.suppress(PtxError):
        read(whole)


@pytest.mark.parametrize(
    "text", [b"\n" * 200_000, b"/*" * 100_000, b"//" * 100_000, b"/**/" * 50_000, b".version " * 20_000]
)
def test_the_head_is_read_once(text: bytes) -> None:
    with pytest.raises(ImageError, match=r"does not begin with"):
        images.sources(text, 80)


def test_a_refusal_is_short_whatever_it_names() -> None:
    with pytest.raises(PtxError) as refused:
        parse(f"{HEADER}.global .u64 n = {'9' * 1_000_000};\n{'.' + 'x' * 1_000_000};")
    assert len(str(refused.value)) < 1000


def test_what_expands_without_end_is_refused() -> None:
    """A kilobyte became 2 GB of text, and took eleven seconds."""
    text = HEADER.encode() + b" " * (128 << 20)
    image = container(fat_entry(text, flags=ZSTD))
    assert len(image) < 1 << 15
    with pytest.raises(ImageError, match="more than 64 MiB of text") as caught:
        images.sources(image, 80)
    assert caught.value.status == INVALID_IMAGE


def test_parts_that_lie_on_each_other_count_each() -> None:
    """A library whose objects are one and the same text."""
    text = HEADER.encode() + b" " * (1 << 20)
    linked = b"".join(
        [(len(text) + 0).to_bytes(8, "little") + bytes(8) + text + bytes(-len(text) % 8) for _ in range(70)]
    )
    image = images.LINKED_MAGIC + (32 + len(linked)).to_bytes(8, "little")
    image += (70).to_bytes(4, "little") + (80).to_bytes(4, "little") + bytes(8) + linked
    with pytest.raises(ImageError, match="more than 64 MiB of text"):
        images.sources(image, 80)


@pytest.mark.parametrize("depth", [images.DEEPEST, images.DEEPEST + 1])
def test_linked_images_are_not_deep(depth: int) -> None:
    """One in the other in the other: each is read as often as it is deep."""
    image = HEADER.encode()
    for _ in range(depth):
        part = len(image).to_bytes(8, "little") + bytes(8) + image + bytes(-len(image) % 8)
        image = images.LINKED_MAGIC + (32 + len(part)).to_bytes(8, "little") + (1).to_bytes(4, "little")
        image += (80).to_bytes(4, "little") + bytes(8) + part
    if depth > images.DEEPEST:
        with pytest.raises(ImageError, match="each in the next"):
            images.sources(image, 80)
    else:
        assert len(images.sources(image, 80)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (kernel("    .shared .b8 a[49153];\n    mov.u32 %r10, a;"), "49153 bytes of static shared memory"),
        (kernel("    .local .b8 a[1000000000000];\n"), "local memory"),
        (HEADER + ".visible .entry k(.param .b8 p[100000]) { ret; }", "parameters"),
        (HEADER + ".global .b8 a[1000000000] = {1};" + entry("", pointers=0), "initial values"),
    ],
)
def test_more_than_a_device_has(text: str, reason: str) -> None:
    with pytest.raises(PtxError, match=reason):
        read(text)
    read(kernel("    .shared .b8 a[49152];\n    mov.u32 %r10, a;"))


def test_loops_in_loops() -> None:
    """Six hundred took 38 s to compile, and ended as out of memory."""
    depth = range(300)
    heads = "".join(f"L{i}: bar.warp.sync -1;\n" for i in depth)
    ends = "".join(f"setp.le.u32 %p0, %r10, 1000;\n@%p0 bra L{i};\n" for i in reversed(depth))
    body = f"mov.u32 %r10, 0;\n{heads}add.u32 %r10, %r10, 1;\n{ends}"
    (out,) = driver.run(kernel(body + store("%r10"), pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert (out == 1001).all()


def test_functions_in_functions() -> None:
    """Those that wait become part of those that call them, but not without end."""
    last = """.func f300(.param .b64 p) {
        .reg .pred %p; .reg .b32 %r; .reg .b64 %x;
        ld.param.b64 %x, [p];
    L:  atom.global.add.u32 %r, [%x], 1;
        setp.eq.u32 %p, %r, 12345;
        @%p bra L;
        ret;
    }"""
    others = [
        f".func f{i}(.param .b64 p) {{ .reg .b64 %x; ld.param.b64 %x, [p]; call f{i + 1}, (%x); ret; }}"
        for i in reversed(range(300))
    ]
    text = kernel("call f0, (%x0);", pointers=1, module="\n".join([last, *others]))
    (out,) = driver.run(text, "k", np.zeros(1, np.uint32), block=(32,))
    assert out[0] == 32


PROGRAM = """
import numpy as np
from tests.ptx import driver
from tests.ptx.ptx import kernel, store
body = "".join(f"    mad.lo.u32 %r10, %r{i % 20}, {i}, %r10;\\n" for i in range(60000))
out = driver.Buffer(np.zeros(1, np.uint32))
try:  # on a slow machine reading it takes too long
    driver.Module(kernel(body + store("%r10"), pointers=1)).launch("k", out)
except driver.CudaError as error:
    print(error.status)
driver.Module(kernel(store("%r1"), pointers=1)).launch("k", out)
print("goes on")
"""


def program(cache: Path, code: str = PROGRAM, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GPUFERRY_SIM_CACHE": str(cache)} | settings,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.system
def test_a_kernel_that_takes_too_long_to_compile(tmp_path: Path) -> None:
    """The compiler is ended and says why; the next kernel has another one."""
    result = program(tmp_path / "cache", GPUFERRY_SIM_COMPILE_SECONDS="1")
    assert result.stdout.split("\n")[:2] == [str(driver.INVALID_PTX), "goes on"], result.stderr
    assert "GPUFERRY_SIM_COMPILE_SECONDS" in result.stderr


def test_the_compiler_s_memory_is_bounded(tmp_path: Path) -> None:
    code = f"import {limits.__name__} as limits\nlimits.set_memory()\nbytearray(1 << 30)"
    result = program(tmp_path, code, GPUFERRY_SIM_COMPILE_BYTES=str(512 << 20))
    assert "MemoryError" in result.stderr


MANY = """
from tests.ptx import driver
from tests.ptx.ptx import HEADER, entry
for i in range(40):
    driver.Module(HEADER + f"//{i}\\n.global .b8 a[{8 << 10}] = {{{i + 1}}};" + entry("", pointers=0))
driver.Module(HEADER + f".global .b8 a[{1 << 20}] = {{1}};" + entry("", pointers=0))
"""


def test_the_cache_stays_within_its_bounds(tmp_path: Path) -> None:
    """It was swept every 64 files, whatever their size: 8 KB of images wrote 240 MiB."""
    cache, most = tmp_path / "cache", 256 << 10
    result = program(cache, MANY, GPUFERRY_SIM_CACHE_BYTES=str(most))
    assert result.returncode == 0, result.stderr
    sizes = [path.stat().st_size for path in cache.iterdir()]
    assert sizes
    assert max(sizes) <= most // 16
    assert sum(sizes) <= most
