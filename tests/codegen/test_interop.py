"""native/driver_interop as NVIDIA's runtime uses it: a C program with the generated stubs as its driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codegen.generate import ROOT, outputs
from codegen.header import compiler, find
from codegen.load import load

NATIVE = ROOT / "native"
FLAGS = [
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-cast-function-type",
    "-g",
    "-O1",
]


@pytest.mark.parametrize("sanitizer", ["none", "address,undefined", "thread"])
def test_interop(sanitizer: str, tmp_path: Path) -> None:
    sources = [Path(__file__).with_name("interop.c"), *(NATIVE / "driver_interop").glob("*.c")]
    for path, text in outputs(load()).items():
        if path.startswith("native/_generated/"):
            file = tmp_path / Path(path).relative_to("native/_generated")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    sources += [tmp_path / "gpuferry_symbols.c", tmp_path / "simdevice_stubs.c"]
    program = tmp_path / "interop"
    flags = [*FLAGS, "-fvisibility=hidden", f"-I{NATIVE}", f"-I{tmp_path}", f"-isystem{find(None)}"]
    if sanitizer != "none":
        flags.append(f"-fsanitize={sanitizer}")
    command = [compiler(), *flags, *map(str, sources), "-rdynamic", "-pthread", "-ldl", "-o", str(program)]
    subprocess.run(command, check=True, timeout=120)
    subprocess.run([str(program)], check=True, timeout=60)
