"""Exports of the simulated device: entries, stubs, twins for the per-thread default stream, aliases."""

from __future__ import annotations

from ..model import Spec
from ..render import render

FILES = {
    "simdevice_entries.c": "sim_entries.c.j2",
    "simdevice_implicit.h": "sim_implicit.h.j2",
    "simdevice_names.h": "sim_names.h.j2",
    "simdevice_stubs.c": "sim_stubs.c.j2",
}


def outputs(spec: Spec) -> dict[str, str]:
    variants = list(spec.driver.variants)
    file = spec.driver.file
    return {
        f"native/_generated/{name}": render(template, __file__, file, variants=variants)
        for name, template in FILES.items()
    }
