"""The support table of the documentation."""

from __future__ import annotations

from ..coverage import TABLE, counts, groups, how
from ..model import Spec
from ..render import render


def outputs(spec: Spec) -> dict[str, str]:
    carried = {
        name: [v for function in functions for v in function.variants if not v.why]
        for name, functions in groups(spec).items()
    }
    text = render(
        "docs_coverage.md.j2",
        __file__,
        spec.driver.file,
        ("<!-- ", " -->"),
        version=spec.driver.version,
        counts=counts(spec.driver.variants),
        groups={name: variants for name, variants in carried.items() if variants},
        how=how,
    )
    return {TABLE: text}
