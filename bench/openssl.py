"""An OpenSSL that encrypts as fast as today's processors can, whichever one this machine's system brings."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.helpers.paths import ROOT

# Its wheel holds OpenSSL 3.5 under the names that are asked for everywhere; nothing else of it is used.
WHEEL = "mysql-connector-python==26.10.0"
LIBRARIES = ("mysql/vendor/libcrypto.so.3", "mysql/vendor/libssl.so.3")
FOLDER = ROOT / "build" / "bench" / "openssl"


def fast() -> Path:
    """The folder of its libraries, for LD_LIBRARY_PATH. They are fetched from PyPI once."""
    if not all((FOLDER / Path(name).name).exists() for name in LIBRARIES):
        FOLDER.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*fetch, f"--dest={FOLDER}", WHEEL], check=True)
        (wheel,) = FOLDER.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in LIBRARIES:
                (FOLDER / Path(name).name).write_bytes(archive.read(name))
        wheel.unlink()
    return FOLDER
