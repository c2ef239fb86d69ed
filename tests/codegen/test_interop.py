"""native/driver_interop as NVIDIA's runtime uses it: C programs with the generated stubs as their driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from codegen.generate import ROOT, outputs
from codegen.header import compiler, find, folders
from codegen.load import load
from tests.helpers.toolkits import RELEASES, toolkit

HERE = Path(__file__).parent
NATIVE = ROOT / "native"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-cast-function-type"]


def build(source: str, output: Path, *flags: str) -> Path:
    """A program or library of one source of this folder, the interop library, and freshly generated stubs."""
    generated = output.parent / "generated"
    for path, text in outputs(load()).items():
        if path.startswith("native/_generated/"):
            file = generated / Path(path).relative_to("native/_generated")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    sources = [HERE / source, HERE / "no_device.c", *(NATIVE / "driver_interop").glob("*.c")]
    sources += [
        generated / "gpuferry_symbols.c",
        generated / "simdevice_stubs.c",
        generated / "simdevice_entries.c",
    ]
    common = ["-std=gnu11", *WARNINGS, "-g", "-O1", "-fvisibility=hidden"]
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'simdevice'}", f"-I{generated}", *folders(find(None))]
    command = [
        compiler(),
        *common,
        *includes,
        *map(str, sources),
        *flags,
        "-pthread",
        "-ldl",
        "-o",
        str(output),
    ]
    subprocess.run(command, check=True, timeout=120)
    return output


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_interop(sanitizer: str, tmp_path: Path) -> None:
    program = build("interop.c", tmp_path / "interop", "-rdynamic", f"-fsanitize={sanitizer}")
    subprocess.run([str(program)], check=True, timeout=240)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("sweep") / "libcuda.so.1"
    return build("sweep.c", library, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("release", RELEASES)
def test_runtime_finds_what_cuda_h_declares(release: str, sweep: Path, tmp_path: Path) -> None:
    """Look-ups that fail are of names that no header has: what is not released."""
    kit = toolkit(release)
    program = tmp_path / "first_call"
    includes = [f"-I{kit.include}", f"-I{find(None)}"]
    libraries = [str(kit.static_runtime), "-ldl", "-lrt", "-lm", "-pthread"]
    command = [compiler(), *includes, str(HERE / "first_call.c"), *libraries, "-o", str(program)]
    subprocess.run(command, check=True, timeout=240)
    environment = {**os.environ, "LD_PRELOAD": str(sweep)}
    done = subprocess.run(
        [str(program)], env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    asked = [line.partition(" ") for line in done.stdout.splitlines()]
    found = {name for result, _, name in asked if result == "found"}
    missing = {name for result, _, name in asked if result == "missing"}
    assert len(found) > 300
    assert not missing & {function.base for function in load().driver.functions}
    assert not [rest for result, _, rest in asked if result == "log"]
