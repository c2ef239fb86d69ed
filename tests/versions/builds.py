"""A guest and a server as of a release, generated from the spec of today."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.paths import BUILD, ROOT

OBJECTS = BUILD / "native"
HERE = Path(__file__).parent


def generate(release: str, folder: Path) -> None:
    """All that `python -m codegen` writes, speaking only what that release did."""
    command = [sys.executable, "-m", "codegen", "--release", release, "--into", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)


def guest_library(generated: Path, output: Path) -> Path:
    """The guest library of these generated files, compiled as the build compiles its own."""
    commands = json.loads((OBJECTS / "compile_commands.json").read_text(encoding="utf-8"))
    objects = []
    for entry in commands:
        built = Path(entry["output"])
        if not built.is_relative_to(OBJECTS / "guest"):
            continue
        source = Path(entry["file"])
        if "_generated" in source.parts:
            source = generated / source.relative_to(ROOT)
        made = output.with_name(f"{output.name}.{source.stem}.o")
        words = [word for word in entry["command"].split() if word != "-Werror"]
        words[words.index("-o") + 1], words[words.index("-c") + 1] = str(made), str(source)
        before = [f"-I{generated / folder}" for folder in ("guest/_generated", "native/_generated")]
        subprocess.run([words[0], *before, *words[1:]], cwd=entry["directory"], check=True, timeout=240)
        objects.append(made)
    archives = sorted(OBJECTS.glob("wire/*.a")) + sorted(OBJECTS.glob("driver_interop/*.a"))
    exports = generated / "guest/_generated/libcuda.map"
    link = ["-shared", f"-Wl,--version-script={exports}", "-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-z,defs"]
    link += ["-Wl,--exclude-libs,ALL", "-Wl,-soname,libcuda.so.1"]
    command = ["gcc", *link, "-o", str(output), *map(str, objects)]
    command += ["-Wl,--whole-archive", *map(str, archives), "-Wl,--no-whole-archive", "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=240)
    return output


def server_environment(generated: Path) -> dict[str, str]:
    """Of a monitor, and of all that it starts: Python reads the contract from these generated files."""
    path = f"{HERE / 'other'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    return {"PYTHONPATH": path, "GPUFERRY_TEST_GENERATED": str(generated / "specs/_generated")}
