"""Machine code that is not run (GPUFERRY_SIM_CODE=skip): what a cubin says of itself, and launches."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from gpuferry.native.simdevice.compiler import fatbin, images, machine_code
from gpuferry.native.simdevice.compiler.errors import NO_BINARY_FOR_GPU, ImageError
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import images as made
from tests.helpers import cubin
from tests.helpers.cubin import Kernel, Variable
from tests.helpers.paths import SIM_LIBRARY

PROGRAM = Path(__file__).parent / "programs" / "skipped.py"


def read(image: bytes, cc: int = 80) -> machine_code.MachineCode:
    return machine_code.read(image, cc, fatbin.Room(machine_code.MOST))


def run(*arguments: str, code: str = "skip") -> subprocess.CompletedProcess[str]:
    settings = {"GPUFERRY_SIM_CODE": code, "GPUFERRY_SIM_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(SIM_LIBRARY), *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


# -- the metadata


def test_parts_that_lie_on_each_other_are_not_read_again_and_again() -> None:
    """Two thousand kernels of one name have its records: half a megabyte would be read as 64."""
    large = Kernel("same", tuple((at, 1) for at in range(2000)))
    assert len(read(cubin.build((large,))).kernels[0].params) == 2000
    with pytest.raises(ImageError, match="holds or expands to more than"):
        read(cubin.build((large, *[Kernel("same")] * 2000)))


def test_what_a_cubin_says_of_clusters() -> None:
    code = read(cubin.build((Kernel("a", cluster=(2, 3, 1)), Kernel("b", most_cluster=5)), target=90), 90)
    assert [(each.cluster, each.most_cluster, each.explicit_cluster) for each in code.kernels] == [
        ((2, 3, 1), 0, False),
        ((0, 0, 0), 5, True),
    ]


@pytest.mark.parametrize("later", [False, True])
def test_what_a_cubin_says(later: bool) -> None:
    code = read(cubin.sample(later=later))
    assert (code.target, code.binary) == (80, 80)
    scale, big, empty, exact = code.kernels
    assert [(offset, size) for offset, size, _ in scale.params] == [(0, 8), (8, 4), (12, 1), (16, 8)]
    assert (scale.param_bytes, scale.registers, scale.shared_static, scale.max_threads) == (24, 40, 400, 256)
    assert (big.param_bytes, big.params[0][:2], big.local_bytes) == (20008, (0, 20000), 800)
    assert (empty.params, empty.param_bytes, empty.const_bytes) == ((), 0, 64)
    assert (exact.required, exact.max_threads) == ((32, 2, 1), 64)
    variables = {variable.name: variable for variable in code.variables}
    assert variables["plain"].initial is None
    assert variables["words"].initial == struct.pack("<4I", 1, 2, 3, 4)
    (place,) = variables["pointer"].relocations
    assert (place[0], code.variables[place[1]].name, place[2]) == (0, "words", 8)
    assert variables["table"].is_const
    assert variables["shared_word"].is_managed
    assert [variables[name].reference for name in ("picture", "canvas", "plain")] == ["texref", "surfref", ""]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
KERNELS = st.builds(
    Kernel,
    NAMES,
    st.lists(st.integers(1, 900), max_size=9).map(
        lambda sizes: tuple((sum(sizes[:at]), size) for at, size in enumerate(sizes))
    ),
    st.integers(1, 255),
    st.integers(0, 100_000),
    st.integers(0, 1 << 20),
    st.integers(0, 1024),
)
VARIABLES = st.builds(
    Variable,
    NAMES,
    st.integers(1, 200),
    st.none() | st.binary(max_size=1),
    is_const=st.just(False),
    is_managed=st.booleans(),
)


@given(
    st.lists(KERNELS, max_size=5, unique_by=lambda each: each.name),
    st.lists(VARIABLES, max_size=5, unique_by=lambda each: each.name),
    st.sampled_from((75, 80, 86, 90, 120)),
    st.booleans(),
)
def test_all_of_it_is_read(
    kernels: list[Kernel], variables: list[Variable], target: int, later: bool
) -> None:
    code = read(cubin.build(tuple(kernels), tuple(variables), (), target, later), target)
    assert code.binary == target
    for kernel, found in zip(kernels, code.kernels, strict=True):
        assert found.name == kernel.name
        assert tuple(each[:2] for each in found.params) == kernel.parameters
        assert (found.registers, found.shared_static) == (kernel.registers, kernel.shared)
        assert (found.local_bytes, found.max_threads) == (kernel.local, kernel.max_threads)
    assert {(each.name, each.size, each.is_managed) for each in code.variables} == {
        (each.name, each.size, each.is_managed) for each in variables
    }


@given(st.data())
def test_a_changed_byte_is_read_or_refused(data: st.DataObject) -> None:
    image = bytearray(cubin.sample())
    image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ImageError):
        read(bytes(image[: data.draw(st.integers(0, len(image)))]))


@pytest.mark.parametrize(("target", "cc"), [(80, 75), (90, 80), (86, 80), (75, 80)])
def test_it_is_for_its_generation(target: int, cc: int) -> None:
    with pytest.raises(ImageError) as raised:
        read(cubin.sample(target), cc)
    assert raised.value.status == NO_BINARY_FOR_GPU


def test_which_of_a_fatbin() -> None:
    """As NVIDIA's driver chooses: the newest of its generation, exact ones for their own capability alone."""
    entries = [
        made.entry(made.TEXT),
        made.entry(cubin.sample(80), made.ZSTD, made.ELF, 80),
        made.entry(cubin.sample(86), made.LZ4, made.ELF, 86),
        made.entry(cubin.sample(90), kind=made.ELF, target=90),
    ]
    for cc, expected in ((80, 80), (86, 86), (89, 86), (90, 90), (100, None)):
        found = images.machine_code(made.container(entries), cc, fatbin.Room(machine_code.MOST))
        assert (None if found is None else read(found, cc).binary) == expected


# -- through the driver


@pytest.mark.parametrize("form", ["cubin", "fatbin", "library"])
def test_a_program(form: str) -> None:
    """It says what is wrong, if anything is."""
    done = run(form)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "no kernel runs" in done.stderr.splitlines()[0]
    assert done.stderr.count("no kernel runs") == 1


def test_it_must_be_asked_for() -> None:
    done = run("refused", code="")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert "the simulated device needs PTX, or GPUFERRY_SIM_CODE=skip" in line


def test_a_setting_that_makes_no_sense() -> None:
    done = run("setting", code="on")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "GPUFERRY_SIM_CODE=on: expected run or skip" in done.stderr
