"""Exports of the simulated device: entries, stubs, refusals, aliases, twins for the per-thread stream."""

from __future__ import annotations

from ..model import Arg, By, Capture, Class, Kind, Needs, Spec, Variant
from ..render import render
from .guest import refused as asked

FILES = {
    "simdevice_entries.c": "sim_entries.c.j2",
    "simdevice_implicit.h": "sim_implicit.h.j2",
    "simdevice_names.h": "sim_names.h.j2",
    "simdevice_stubs.c": "sim_stubs.c.j2",
}


def outputs(spec: Spec) -> dict[str, str]:
    variants = list(spec.driver.variants)
    file = spec.driver.file
    refused = {v.symbol: checks for v in variants if (checks := refusal(v)) is not None}
    return {
        f"native/_generated/{name}": render(
            template, __file__, file, variants=variants, refused=refused, captured=captured
        )
        for name, template in FILES.items()
    }


def captured(v: Variant) -> str:
    """The expression of what a call is refused with while something is captured, before its arguments are
    looked at, as in the guest; empty: nothing, or what is asked about an event or a context, which must be
    found first.
    """
    early = (Capture.UNSAFE, Capture.COPY, Capture.STREAM)
    return asked(v).replace("gf_capture_", "sim_may_capture_") if v.capture in early else ""


def refusal(v: Variant) -> list[str] | None:
    """C expressions (CUresult) of what is looked at before a function of a thing that the device lacks
    answers its error; None if the function does more than that."""
    if not (v.klass is Class.LOCAL and v.guest is By.GENERATED and v.needs is not Needs.NONE):
        return None
    if v.result in (None, "CUDA_SUCCESS") or v.early or v.answer or v.effect:
        return None
    checks = [look(arg) for arg in v.args]
    return None if None in checks else [check for check in checks if check]


def look(arg: Arg) -> str | None:
    """The check of an argument: empty if it may be anything, None if the device has its own."""
    match arg.kind:
        case Kind.IGNORED:
            return ""
        case Kind.HOST:
            return "" if arg.nullable else f"sim_refuse_unless({arg.name} != NULL)"
        case Kind.SCALAR:
            return f"sim_refuse_unless({arg.name} >= {arg.min})" if arg.min else ""
        case Kind.FLAGS:
            return None if arg.allow else f"sim_refuse_unless({arg.name} == 0)"
        case Kind.DEVICE:
            return f"sim_refuse_device({arg.name})"
        case Kind.HANDLE if arg.of == ("stream",):
            return f"sim_refuse_stream({arg.name})"
    return None
