"""What was made of a text once, in build/: for commands and tests that begin with the same long parse."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

FOLDER = Path(__file__).resolve().parent.parent / "build" / "parsed"

T = TypeVar("T")


def parsed_once(parser: Path, texts: Sequence[str], parse: Callable[[], T]) -> T:
    """What `parse` makes of the texts. It is kept for those who ask again with the same ones, as long as the
    parser (a source file), pycparser and Python are the same too. Not being able to keep it is no error.
    """
    key = hashlib.sha256(repr((sys.version, version("pycparser"), parser.read_text(), texts)).encode())
    file = FOLDER / f"{parser.stem}-{key.hexdigest()[:32]}"
    with contextlib.suppress(OSError, pickle.UnpicklingError, EOFError):
        found: T = pickle.loads(file.read_bytes())
        return found
    made = parse()
    with contextlib.suppress(OSError):
        FOLDER.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=FOLDER, delete=False) as kept:
            kept.write(pickle.dumps(made))
        os.replace(kept.name, file)
    return made
