"""The guest's exported entry points, and declarations of what is written by hand behind them."""

from __future__ import annotations

from ..model import By, Capture, Spec, SpecError, Variant
from ..render import render


def outputs(spec: Spec) -> dict[str, str]:
    file = spec.driver.file
    functions = [v for v in spec.driver.variants if v.alias is None]
    written = [v for v in functions if v.guest is not By.NONE]
    exports = [symbol for v in spec.driver.variants for symbol in _symbols(v)]
    return {
        "guest/_generated/functions.h": render(
            "guest_functions.h.j2", __file__, file, functions=functions, written=written
        ),
        "guest/_generated/entry_points.c": render(
            "guest_entry_points.c.j2",
            __file__,
            file,
            variants=list(spec.driver.variants),
            functions=functions,
            refused=refused,
        ),
        "guest/_generated/libcuda.map": render(
            "guest_libcuda.map.j2", __file__, file, exports=sorted(exports)
        ),
    }


def _symbols(variant: Variant) -> list[str]:
    return [variant.symbol] + ([variant.per_thread.symbol] if variant.per_thread else [])


def refused(variant: Variant) -> str:
    """The expression that says what a call is refused with while something is captured; empty: nothing."""
    if variant.capture in (None, Capture.FREE, Capture.NODE):
        return ""
    asked = {Capture.COPY: "CUstream", Capture.STREAM: "CUstream", Capture.EVENT: "CUevent"}
    ctype = asked.get(variant.capture)
    found = [p.name for p in variant.signature.params if p.ctype == ctype]
    if variant.stream == "implicit" and ctype == "CUstream":
        found = [f"{name} ? {name} : stream" for name in found] or ["stream"]
    if variant.capture is Capture.COPY and not found:
        found = ["CU_STREAM_LEGACY"]  # of an interface that is older than per-thread streams
    if ctype is not None and len(found) != 1:
        cause = f"{variant.symbol}: 'capture: {variant.capture.value}' asks about one {ctype}"
        raise SpecError(variant.where, cause, "Say another one")
    return f"gf_capture_{variant.capture.value}({', '.join(found) if ctype else ''})"
