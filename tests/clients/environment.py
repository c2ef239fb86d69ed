"""The environment of a client: made once, at the versions of the table."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.helpers.paths import ROOT

from .table import Client


def prepare(client: Client, folder: Path) -> Path:
    """Make it if it is not there as the table has it now; returns where it is."""
    if client.debian:
        _call(ROOT / ".ci" / "packages.sh", *client.debian)
    place = folder / "venv"
    if made(client, folder):
        return place
    shutil.rmtree(place, ignore_errors=True)
    _call(sys.executable, "-m", "venv", place)
    pip: list[str | Path] = [place / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
    _call(*pip, "install", *client.requirements)
    if client.without:
        _call(*pip, "uninstall", "-y", *client.without)
    if client.sources:
        _unpack_tests(client.sources, place, pip)
    _stamp(folder).write_text(_wanted(client))
    return place


def made(client: Client, folder: Path) -> bool:
    """Whether it is there as the table has it now."""
    return _stamp(folder).exists() and _stamp(folder).read_text() == _wanted(client)


def _stamp(folder: Path) -> Path:
    return folder / "venv" / "made"


def _wanted(client: Client) -> str:
    return "\n".join([*client.requirements, *client.without, client.sources, sys.version])


def _unpack_tests(requirement: str, place: Path, pip: list[str | Path]) -> None:
    # pip has the metadata of a source distribution made; READTHEDOCS has that done without CUDA.
    name = requirement.partition("==")[0]
    download = [*pip, "download", "--no-deps", "--no-binary", name, "-d", place, requirement]
    _call("env", "READTHEDOCS=True", *download)
    (archive,) = place.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as tar:
        # Out of the source tree, whose package would be imported instead of the installed one.
        for member in tar.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name.startswith("tests/"):
                tar.extract(member, place, filter="data")
    archive.unlink()


def _call(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def build_digest(root: Path) -> str:
    """Of everything that is under test here: results of another build are not this one's."""
    digest = hashlib.sha256()
    for folder in ("apiserver", "guest", "migration", "monitor", "native", "specs", "build/native"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".so", ".1") and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
