"""CUDA's mathematical functions, as nvcc compiles them, within the bounds of the CUDA programming guide."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

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

LIBM = ctypes.CDLL("libm.so.6")  # its lgamma is better than Python's
LIBM.lgamma.restype, LIBM.lgamma.argtypes = ctypes.c_double, [ctypes.c_double]


def guarded(function: Callable[..., float]) -> Reference:
    def call(*values: float) -> float:
        try:
            return float(function(*values))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


def quiet(function: Callable[..., np.floating]) -> Reference:
    def call(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*(np.float64(value) for value in values)))

    return call


# name: (reference, arguments of one or two parameters, ulps of the float version, ulps of the double version)
FUNCTIONS: dict[str, tuple[Reference, tuple[list[float], ...], float, float]] = {
    "exp": (quiet(np.exp), (WIDE,), 1, 1),
    "exp2": (quiet(np.exp2), (WIDE,), 2, 1),
    "exp10": (quiet(lambda x: np.power(np.float64(10), x)), (ANY,), 2, 2),
    "expm1": (quiet(np.expm1), (WIDE,), 1, 1),
    "log": (quiet(np.log), (POSITIVE,), 1, 1),
    "log2": (quiet(np.log2), (POSITIVE,), 1, 1),
    "log10": (quiet(np.log10), (POSITIVE,), 2, 1),
    "log1p": (quiet(np.log1p), ([*POSITIVE, -0.5, -0.999],), 1, 1),
    "sin": (guarded(math.sin), (ANGLES,), 2, 2),
    "cos": (guarded(math.cos), (ANGLES,), 2, 2),
    "tan": (guarded(math.tan), (ANGLES,), 4, 2),
    "asin": (guarded(math.asin), (UNIT,), 2, 2),
    "acos": (guarded(math.acos), (UNIT,), 2, 2),
    "atan": (guarded(math.atan), (WIDE,), 2, 2),
    "atan2": (guarded(math.atan2), (ANY[:12], ANY[3:20]), 3, 2),
    "sinh": (quiet(np.sinh), (WIDE,), 3, 2),
    "cosh": (quiet(np.cosh), (WIDE,), 2, 1),
    "tanh": (quiet(np.tanh), (WIDE,), 2, 1),
    "asinh": (guarded(math.asinh), (WIDE,), 3, 3),
    "acosh": (guarded(math.acosh), (ABOVE_ONE,), 4, 3),
    "atanh": (guarded(math.atanh), (INSIDE,), 3, 2),
    "pow": (quiet(np.power), (POSITIVE, [0.0, 0.5, 1.0, 2.0, -1.5, 3.7, 10.0]), 4, 2),
    "hypot": (quiet(np.hypot), (ANY, ANY[:10]), 3, 2),
    "cbrt": (quiet(np.cbrt), (WIDE,), 1, 1),
    "sqrt": (guarded(math.sqrt), (POSITIVE,), 0.5, 0.5),
    "rsqrt": (guarded(lambda x: 1 / math.sqrt(x) if x else math.inf), (POSITIVE,), 2, 1),
    "erf": (guarded(math.erf), (WIDE,), 2, 2),
    "erfc": (guarded(math.erfc), (ANY[:12],), 4, 5),
    "lgamma": (LIBM.lgamma, (GAMMA,), 6, 4),
    "tgamma": (guarded(math.gamma), (GAMMA,), 5, 10),
    "fmod": (guarded(math.fmod), (ANY, [0.3, 1.0, 7.5]), 0.5, 0.5),
    "remainder": (guarded(math.remainder), (ANY, [0.3, 1.0, 7.5]), 0.5, 0.5),
    "floor": (quiet(np.floor), (ANY,), 0.5, 0.5),
    "rint": (quiet(np.rint), (ANY,), 0.5, 0.5),
    "round": (quiet(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)), (ANY,), 0.5, 0.5),
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
    # The reference is a double, and the library that made it may be off by one ulp of it.
    allowed = single if type_ == "float" else double + 0.5
    for case, got in zip(zip(*columns, strict=True), out.read(), strict=True):
        expected = reference(*(float(value) for value in case))
        assert ulps(format_, float(got), expected) <= allowed, f"{name}{case}: {got!r}, expected {expected!r}"
