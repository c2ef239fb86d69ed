"""What both sides of the wire share: messages, operation ids, spec hash, attributes reported otherwise."""

from __future__ import annotations

from ..model import Spec
from ..released import operations, spec_hash
from ..render import render
from ..wire import messages


def outputs(spec: Spec) -> dict[str, str]:
    files = ", ".join(library.file for library in spec.libraries)
    digest = spec_hash(operations(spec))
    found = messages(spec)
    functions = [v.id for v in spec.driver.variants]
    return {
        "native/_generated/gpuferry/messages.h": render(
            "shared_messages.h.j2", __file__, files, messages=found, digest=digest, functions=functions
        ),
        "native/_generated/gpuferry/kinds.h": render(
            "shared_kinds.h.j2", __file__, "specs/cuda/objects.yaml", kinds=spec.objects.all
        ),
        "native/_generated/gpuferry/results.h": render(
            "shared_results.h.j2", __file__, "specs/cuda/results.yaml", results=spec.results
        ),
        "native/_generated/gpuferry/device_overrides.h": render(
            "shared_device_overrides.h.j2", __file__, "specs/cuda/device.yaml", overrides=spec.overrides
        ),
        "specs/_generated/wire.py": render(
            "shared_wire.py.j2",
            __file__,
            files,
            ("# ", ""),
            digest=digest,
            messages=found,
            unsupported=[v for v in spec.driver.variants if v.why],
        ),
    }
