"""Exports of the simulated device: stubs, twins for the per-thread default stream, aliases."""

from __future__ import annotations

from ..model import Spec
from ..render import render


def outputs(spec: Spec) -> dict[str, str]:
    variants = list(spec.driver.variants)
    file = spec.driver.file
    return {
        "native/_generated/simdevice_stubs.c": render("sim_stubs.c.j2", __file__, file, variants=variants),
        "native/_generated/simdevice_implicit.h": render(
            "sim_implicit.h.j2", __file__, file, variants=variants
        ),
    }
