"""CUDA's mathematical functions, as nvcc compiles them, within the bounds of the CUDA programming guide."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest

from tests.helpers import toolchain, toolkits

from . import driver
from .formats import F32, F64, ulps

ANY = [
    s * v
    for s in (1, -1)
    for v in (0.0, 1e-40, 1e-20, 1e-5, 0.1, 0.5, 0.75, 1.0, 1.5, 2.0, 3.14159, 10.0, 20.5, 50.25)
]
WIDE = [*ANY, 88.0, -87.0, 1e5, -1e5, 1e30, math.inf, -math.inf, math.nan]
POSITIVE = [1e-38, 1e-20, 0.001, 0.3, 0.99, 1.0, 1.01, 2.0, 2.71828, 10.0, 1000.0, 1e20, math.inf, 0.0]
UNIT = [s * v for s in (1, -1) for v in (0.0, 1e-20, 1e-5, 0.1, 0.5, 0.7, 0.9, 0.999, 1.0)]
INSIDE = [value for value in UNIT if abs(value) < 1]
ABOVE_ONE = [1.0, 1.001, 1.5, 2.0, 10.0, 1e5, 1e20]
ANGLES = [*ANY, 100.0, -1000.0, 1e5, 123456.789, 1e9]
GAMMA = [0.1, 0.5, 1.5, 2.5, 3.7, 5.0, 7.25, 10.5, 20.0, 30.5]

Reference = Callable[..., float]
BITS = 600  # of what is computed exactly: 1 + 1e-40 and the sine of 1e9 have many to spare


def plain(function: Callable[..., float]) -> Reference:
    """What Python's or NumPy's function says, and CUDA's answer where Python raises."""

    def call(*values: float) -> float:
        try:
            with np.errstate(all="ignore"):
                return float(function(*(np.float64(value) for value in values)))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


def exact(function: Callable[..., mpmath.mpf], limits: Callable[..., float]) -> Reference:
    """Rounded once from many bits: the C library of one machine is off by more ulps than that of another.
    What `limits` says of zeros, infinities and overflow is exact on all, and keeps signs.
    """
    at_limits = plain(limits)

    def call(*values: float) -> float:
        near = at_limits(*values)
        if not all(math.isfinite(value) and value for value in values) or not math.isfinite(near) or not near:
            return near
        with mpmath.workprec(BITS):
            return float(function(*(mpmath.mpf(float(value)) for value in values)))

    return call


def cube_root(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


# name: (reference, arguments of one or two parameters, ulps of the float version, ulps of the double version)
FUNCTIONS: dict[str, tuple[Reference, tuple[list[float], ...], float, float]] = {
    "exp": (exact(mpmath.exp, np.exp), (WIDE,), 1, 1),
    "exp2": (exact(lambda x: mpmath.power(2, x), np.exp2), (WIDE,), 2, 1),
    "exp10": (exact(lambda x: mpmath.power(10, x), lambda x: np.power(np.float64(10), x)), (ANY,), 2, 2),
    "expm1": (exact(mpmath.expm1, np.expm1), (WIDE,), 1, 1),
    "log": (exact(mpmath.log, np.log), (POSITIVE,), 1, 1),
    "log2": (exact(lambda x: mpmath.log(x, 2), np.log2), (POSITIVE,), 1, 1),
    "log10": (exact(mpmath.log10, np.log10), (POSITIVE,), 2, 1),
    "log1p": (exact(lambda x: mpmath.log(1 + x), np.log1p), ([*POSITIVE, -0.5, -0.999],), 1, 1),
    "sin": (exact(mpmath.sin, math.sin), (ANGLES,), 2, 2),
    "cos": (exact(mpmath.cos, math.cos), (ANGLES,), 2, 2),
    "tan": (exact(mpmath.tan, math.tan), (ANGLES,), 4, 2),
    "asin": (exact(mpmath.asin, math.asin), (UNIT,), 2, 2),
    "acos": (exact(mpmath.acos, math.acos), (UNIT,), 2, 2),
    "atan": (exact(mpmath.atan, math.atan), (WIDE,), 2, 2),
    "atan2": (exact(mpmath.atan2, math.atan2), (ANY[:12], ANY[3:20]), 3, 2),
    "sinh": (exact(mpmath.sinh, np.sinh), (WIDE,), 3, 2),
    "cosh": (exact(mpmath.cosh, np.cosh), (WIDE,), 2, 1),
    "tanh": (exact(mpmath.tanh, np.tanh), (WIDE,), 2, 1),
    "asinh": (exact(mpmath.asinh, math.asinh), (WIDE,), 3, 3),
    "acosh": (exact(mpmath.acosh, math.acosh), (ABOVE_ONE,), 4, 3),
    "atanh": (exact(mpmath.atanh, math.atanh), (INSIDE,), 3, 2),
    "pow": (exact(mpmath.power, np.power), (POSITIVE, [0.0, 0.5, 1.0, 2.0, -1.5, 3.7, 10.0]), 4, 2),
    "hypot": (exact(mpmath.hypot, np.hypot), (ANY, ANY[:10]), 3, 2),
    "cbrt": (exact(cube_root, np.cbrt), (WIDE,), 1, 1),
    "sqrt": (plain(math.sqrt), (POSITIVE,), 0.5, 0.5),
    "rsqrt": (exact(lambda x: 1 / mpmath.sqrt(x), lambda x: 1 / np.sqrt(x)), (POSITIVE,), 2, 1),
    "erf": (exact(mpmath.erf, math.erf), (WIDE,), 2, 2),
    "erfc": (exact(mpmath.erfc, math.erfc), (ANY[:12],), 4, 5),
    "lgamma": (exact(mpmath.loggamma, math.lgamma), (GAMMA,), 6, 4),
    "tgamma": (exact(mpmath.gamma, math.gamma), (GAMMA,), 5, 10),
    "fmod": (plain(math.fmod), (ANY, [0.3, 1.0, 7.5]), 0.5, 0.5),
    "remainder": (plain(math.remainder), (ANY, [0.3, 1.0, 7.5]), 0.5, 0.5),
    "floor": (plain(np.floor), (ANY,), 0.5, 0.5),
    "rint": (plain(np.rint), (ANY,), 0.5, 0.5),
    "round": (plain(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)), (ANY,), 0.5, 0.5),
}
TYPES = {"float": (np.float32, F32), "double": (np.float64, F64)}


def source() -> str:
    kernels = []
    for name, (_, arguments, _, _) in FUNCTIONS.items():
        for type_ in TYPES:
            callee = name + ("f" if type_ == "float" else "")
            call = f"{callee}(a[i])" if len(arguments) == 1 else f"{callee}(a[i], b[i])"
            kernels.append(
                f'extern "C" __global__ void {name}_{type_}'
                f"({type_} *out, const {type_} *a, const {type_} *b, int n)\n"
                f"{{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = {call}; }}\n"
            )
    return "".join(kernels)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> driver.Module:
    if toolkits.toolkit().nvcc is None:
        pytest.skip("no nvcc")
    path = tmp_path_factory.mktemp("maths") / "maths.cu"
    path.write_text(source())
    return driver.Module(Path(toolchain.ptx(path)).read_text())


@pytest.mark.some(20)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(module: driver.Module, name: str, type_: str) -> None:
    reference, arguments, single, double = FUNCTIONS[name]
    dtype, format_ = TYPES[type_]
    columns = [column.ravel().astype(dtype) for column in np.meshgrid(*arguments)]
    first, second = columns[0], columns[-1]
    out = driver.Buffer(np.zeros_like(first))
    count = np.int32(len(first))
    module.launch(
        f"{name}_{type_}", out, driver.Buffer(first), driver.Buffer(second), count, grid=(4,), block=(128,)
    )
    # A bound is of what is not rounded; the reference is, to a double.
    allowed = single if type_ == "float" else double + 0.5
    for case, got in zip(zip(*columns, strict=True), out.read(), strict=True):
        expected = reference(*(float(value) for value in case))
        assert ulps(format_, float(got), expected) <= allowed, f"{name}{case}: {got!r}, expected {expected!r}"
