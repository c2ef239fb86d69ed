"""Libraries that the guest answers by itself: mistakes in their specs, and what their header says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from codegen import header, local_library
from codegen.model import SpecError

TEXT = """library: nvml
header: nvml.h
version: 13
result: nvmlReturn_t
functions:
  nvmlDeviceGetIndex:
    signature: nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
    guest: generated
    answer: {index: device.index}
"""

MISTAKES = {
    "unknown key": ("    guest: generated", "    guets: generated", "missing key 'guest'"),
    "a key that nobody knows": ("    guest:", "    async: true\n    guest:", "unknown key 'async'"),
    "no such way": ("guest: generated", "guest: generatde", "Did you mean 'generated'?"),
    "no such argument": ("{index: device", "{idnex: device", "unknown argument 'idnex'"),
    "no such source": ("device.index}", "devise.index}", "unknown name 'devise.index'"),
    "no expression": ("device.index}", "device index}", "is not an expression"),
    "another function": (
        "nvmlDeviceGetIndex:",
        "nvmlDeviceGetIndx:",
        "the signature is of nvmlDeviceGetIndex",
    ),
    "an answer of what is not carried": ("guest: generated", "guest: unsupported", "do not go together"),
    "a condition without an answer": (
        "guest: generated\n    answer: {index: device.index}",
        "guest: custom\n    if: device.index > 0",
        "do not go together",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, told = MISTAKES[name]
    assert TEXT.count(old) == 1
    (tmp_path / "one.yaml").write_text(TEXT.replace(old, new))
    monkeypatch.setattr(local_library, "SPECS", tmp_path)
    with pytest.raises(SpecError, match=r"specs/one\.yaml:") as error:
        local_library.load_local("one.yaml")
    assert told in str(error.value)


@pytest.mark.system
def test_the_header() -> None:
    (library,) = local_library.load_all()
    if header.find_header(library.header, None) is None:
        pytest.skip("nvml.h is not installed: nvidia-nvml-dev is in .ci/lock.txt")
    assert local_library.check(library, None) == []
    first, *others = library.functions
    fewer = replace(library, functions=tuple(others))
    assert f"nvml.h declares {first.symbol}" in local_library.check(fewer, None)[0]
    other = replace(others[0], signature=replace(others[0].signature, returns="void"))
    wrong = replace(library, functions=(first, other, *others[1:]))
    assert f"{other.symbol}: the signature is not" in local_library.check(wrong, None)[0]
    assert "another version" in local_library.check(replace(library, version=12), None)[0]
