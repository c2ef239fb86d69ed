"""Compiles the engine and its targets with the code under test, under ASan and UBSan, once per content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from codegen.header import folders
from tests.helpers.paths import BUILD, ROOT

HERE = Path(__file__).parent
FOLDER = BUILD / "fuzz"
CUDA = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include"
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-g",
    "-pthread",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-omit-frame-pointer",
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
COVERAGE = "-fsanitize-coverage=trace-pc"
INCLUDES = (
    "guest/src",
    "guest/_generated",
    "native",
    "native/_generated",
    "native/simdevice",
    "native/simdevice/exec",
)

TRANSPORT = ("connect", "open", "close", "read", "write", "may_follow", "cause")

# What reaches the outside is the target's.
REPLACED = {
    **{f"gf_transport_{what}": f"fuzz_transport_{what}" for what in TRANSPORT},
    "gf_random_bytes": "fuzz_random_bytes",
    "gf_digest_equal": "fuzz_digest_equal",
    "nanosleep": "fuzz_nanosleep",
    "gf_log_write": "fuzz_log_write",
}
QUIET = {"gf_log_write": "fuzz_log_write", "malloc": "fuzz_malloc"}
RECEIVED = {
    "gf_transport_receive": "fuzz_transport_receive",
    "gf_transport_cause": "fuzz_transport_reason",
}
TESTED: Mapping[str, Mapping[str, str]] = {
    "guest/src/replies.c": {**QUIET, "gf_printed": "fuzz_printed"} | RECEIVED,
    "guest/src/handshake.c": {
        "gf_transport_read": "fuzz_transport_read",
        "gf_transport_cause": "fuzz_transport_cause",
        "malloc": "fuzz_malloc",
    },
    **{
        f"guest/src/{name}.c": REPLACED
        for name in ("credential", "hello", "operations", "portion", "program", "queue", "redirect", "resume")
    },
    "guest/src/devices.c": {"gf_log_write": "fuzz_log_write"},
    **{f"guest/src/{name}.c": {} for name in ("image", "session", "stats")},
    **{f"native/driver_interop/{name}.c": {} for name in ("asked", "visible")},
    "guest/_generated/needs.c": {},
    "apiserver/_generated/codecs.c": {},
    **{f"native/wire/{name}.c": {} for name in ("image_check", "link_set", "readable")},
    **{f"native/wire/{name}.c": {} for name in ("sha256", "sha256_block", "sha256_x86")},
    **{f"native/simdevice/exec/{name}.c": {} for name in ("sniff", "cubin", "extent")},
}


Job = tuple[str, str, Mapping[str, str]]


class CompileError(Exception):
    """The compiler's own words."""


def build(changes: Mapping[str, tuple[str, str]] | None = None) -> Path:
    """The executable of all targets. `changes`: in these files of the repository, a text and what stands in
    its place, for tests of the fuzzer itself.
    """
    jobs: list[Job] = [
        (source, COVERAGE, names) for source, names in TESTED.items() if (ROOT / source).exists()
    ]
    for path in sorted((HERE / "targets").glob("*.c")):
        holds = path.stem == "handshake"  # code under test, for what it calls has no other name
        jobs.append((str(path.relative_to(ROOT)), COVERAGE if holds else "", REPLACED if holds else {}))
    jobs.append(("tests/fuzz/fuzz.c", "", {}))
    edits = changes or {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda job: _object(job, edits.get(job[0])), jobs))
    name = hashlib.sha256("".join(path.name for path in objects).encode()).hexdigest()[:16]
    return _made(
        FOLDER / f"fuzz-{name}",
        ["gcc", *SANITIZERS, "-pthread", "-Wl,--gc-sections", *map(str, objects), "-lm"],
    )


def _object(job: Job, change: tuple[str, str] | None) -> Path:
    source, coverage, names = job
    path = ROOT / source
    text = path.read_text()
    includes = [f"-I{ROOT / folder}" for folder in (*INCLUDES, "tests/fuzz", "tests/fuzz/targets", ".")]
    if change:
        before, after = change
        assert text.count(before) == 1, f"{source}: {before!r} is there {text.count(before)} times"
        text = text.replace(before, after)
    defines = [f"-D{name}={other}" for name, other in names.items()]
    command = ["gcc", *FLAGS, *SANITIZERS, *filter(None, [coverage]), *defines, *includes]
    command += folders(CUDA)
    told = hashlib.sha256(" ".join(command).encode() + text.encode() + _headers()).hexdigest()[:24]
    found = FOLDER / f"{path.stem}-{told}.o"
    if change and not found.exists():
        path = FOLDER / f"{path.stem}-{told}.c"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        command.append(f"-I{(ROOT / source).parent}")
    return _made(found, [*command, "-c", str(path)])


def _headers() -> bytes:
    """Of everything that the sources include, generated ones too."""
    digest = hashlib.sha256()
    for folder in (*INCLUDES, "native/wire", "native/driver_interop", "apiserver/_generated", "tests/fuzz"):
        for header in sorted((ROOT / folder).rglob("*.h")):
            digest.update(header.read_bytes())
    digest.update((ROOT / "guest/src/connect.c").read_bytes())
    return digest.digest()


def _made(path: Path, command: Sequence[str]) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        done = subprocess.run([*command, "-o", str(draft)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{' '.join(command)}\n{done.stderr}")
        os.replace(draft, path)
    return path


if __name__ == "__main__":
    print(build())
