"""Compiles CUDA programs: .cu with nvcc, .c against cuda.h and our own libcuda.so.1.

Results live in build/programs under a hash of all that went in: a program is compiled once per content.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .paths import BUILD, PROGRAMS, ROOT, SIM_LIBRARY
from .toolkits import NEWEST, WHEELS, Toolkit, toolkit

_CACHE = BUILD / "programs"
_HOST_FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


class CompileError(Exception):
    """The compiler's own words."""


def program(
    source: Path,
    flags: Sequence[str] = (),
    *,
    inputs: Sequence[Path] = (),
    release: str = NEWEST,
    shared_runtime: bool = False,
) -> Path:
    """The executable of one source file; `flags` are added to the compiler's defaults; `inputs` go in too."""
    kit = toolkit(release)
    if source.suffix == ".cu":
        command = _nvcc(kit, source, flags, shared_runtime)
    elif "-lcudart" in flags:
        command = _host_with_runtime(kit, source, [f for f in flags if f != "-lcudart"], shared_runtime)
    else:
        command = _host_with_driver(kit, source, flags)
    return _built(source.stem, command, [source, *inputs, *_headers()])


def ptx(source: Path, arch: str = "compute_80") -> Path:
    """The PTX text of a .cu file."""
    kit = toolkit()
    return _built(source.stem + ".ptx", [_require_nvcc(kit), "-ptx", f"-arch={arch}", str(source)], [source])


def _nvcc(kit: Toolkit, source: Path, flags: Sequence[str], shared_runtime: bool) -> list[str]:
    command = [_require_nvcc(kit), "-ccbin", "g++", f"-I{PROGRAMS}", f"-L{kit.lib}", *flags, str(source)]
    if shared_runtime:
        # The wheels hold only libcudart.so.13, which -cudart shared does not find.
        command += ["-cudart", "none", *_shared(kit)]
    return command


def _host_with_driver(kit: Toolkit, source: Path, flags: Sequence[str]) -> list[str]:
    driver = ["-Wl,--as-needed", f"-L{SIM_LIBRARY.parent}", "-l:libcuda.so.1"]
    # The headers are those that the spec was checked against, also where an older nvcc makes the kernels.
    headers = toolkit(WHEELS).include if kit.release == NEWEST else kit.include
    includes = [f"-I{headers}", f"-I{PROGRAMS}", f"-I{ROOT / 'native'}", f"-I{_kernels_header().parent}"]
    return ["gcc", *_HOST_FLAGS, *includes, str(source), *driver, "-ldl", *flags]


def _host_with_runtime(kit: Toolkit, source: Path, flags: Sequence[str], shared_runtime: bool) -> list[str]:
    includes = [
        f"-I{kit.include}",
        f"-I{toolkit().include}",
        f"-I{PROGRAMS}",
        f"-I{_kernels_header().parent}",
    ]
    library = _shared(kit) if shared_runtime else [str(kit.static_runtime), "-lrt", "-ldl", "-lm"]
    return ["gcc", *_HOST_FLAGS, *includes, str(source), *library, *flags]


def _shared(kit: Toolkit) -> list[str]:
    return ["-Xlinker", str(kit.shared_runtime), "-Xlinker", f"-rpath={kit.lib}"]


def _require_nvcc(kit: Toolkit) -> str:
    if kit.nvcc is None:
        raise CompileError(f"the wheels of CUDA {kit.release} carry no nvcc")
    return str(kit.nvcc)


def _headers() -> list[Path]:
    return [*sorted(PROGRAMS.glob("*.h")), PROGRAMS / "kernels.cu"]


def _kernels_header() -> Path:
    """kernels.cu as PTX text in a C string, for driver-API programs."""
    text = ptx(PROGRAMS / "kernels.cu")
    header = text.with_suffix(".d") / "kernels_ptx.h"
    if not header.exists():
        escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in text.read_text().splitlines())
        lines = [f'    "{line}\\n"\n' for line in escaped if line]
        _write(header, "static const char kernels_ptx[] =\n" + "".join(lines) + "    ;\n")
    return header


def _built(name: str, command: Sequence[str], inputs: Sequence[Path]) -> Path:
    key = hashlib.sha256("\0".join(command).encode())
    for path in inputs:
        key.update(path.read_bytes())
    output = _CACHE / key.hexdigest()[:16] / name
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        # Several pytest workers may build the same thing: each renames its own result into place.
        partial = output.with_name(f"{name}.{os.getpid()}")
        run = subprocess.run(
            [*command, "-o", str(partial)], capture_output=True, text=True, cwd=output.parent
        )
        if run.returncode != 0:
            raise CompileError(f"{' '.join(command)}\n{run.stdout}{run.stderr}")
        partial.rename(output)
    return output


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)
