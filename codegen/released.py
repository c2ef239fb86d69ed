"""What was released stays: the layout of each operation and of each frame, by release (`specs/released/`)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from .document import Value, read
from .frames import Frames
from .load import SPECS
from .model import Spec, SpecError, Where
from .released_frames import Line, lines, named
from .wire import canonical

FOLDER = "released"
NAME = re.compile(r"\d+\.\d+(\.\d+)?")
HEAD = """\
# How release {name} lays out its operations: by `python -m codegen release {name}`; never changed.
"""


@dataclass(frozen=True)
class Operation:
    """One operation of a release, with its layout as one line of text."""

    id: int
    symbol: str
    layout: str

    @property
    def digest(self) -> int:
        """32 bits of the layout's SHA-256: two builds that agree on it lay the operation out alike."""
        return int.from_bytes(hashlib.sha256(self.layout.encode()).digest()[:4], "little")


def spec_hash(spoken: dict[int, Operation]) -> bytes:
    """The hash by which HELLO tells a build that speaks these operations from any other, 32 bytes."""
    text = "".join(f"{operation.layout}\n" for _, operation in sorted(spoken.items()))
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class Release:
    """The operations of a release, and the frames of its version of the protocol. `functions` are the
    first and the last wire id of the driver's functions then.
    """

    name: str
    functions: tuple[int, int]
    operations: dict[int, Operation]
    where: dict[int, Where]
    protocol: int
    frames: dict[str, Line]

    @property
    def spec_hash(self) -> bytes:
        """The spec hash that a build of the release says in HELLO, 32 bytes."""
        return spec_hash(self.operations)


def _operation(layout: str) -> Operation:
    number, symbol, _ = layout.split(" ", 2)
    return Operation(int(number), symbol, layout)


def operations(spec: Spec) -> dict[int, Operation]:
    """The operations that a build of the spec speaks, by wire id."""
    found = [_operation(line) for line in canonical(spec).splitlines()]
    return {each.id: each for each in found if spec.only is None or each.id in spec.only}


def current(spec: Spec, frames: Frames, name: str = "") -> Release:
    """The present spec as a release."""
    ids = [variant.id for variant in spec.driver.variants]
    where = {variant.id: variant.where for variant in spec.operations}
    return Release(name, (min(ids), max(ids)), operations(spec), where, frames.version, lines(frames))


def _load_operation(value: Value) -> tuple[Operation, Where]:
    keys = value.mapping()
    operation, digest = _operation(keys.need("layout").text()), keys.need("digest")
    keys.done()
    if digest.integer() != operation.digest:
        raise digest.fail(
            f"operation {operation.id} has another digest than its layout ({operation.digest:#010x})",
            "Restore the file: what was released is not edited",
        )
    return operation, keys.where


def _load_line(value: Value) -> Line:
    text = value.text()
    return Line(named(text), text, value.where)


def _load(path: Path, shown: str) -> Release:
    keys = read(path, shown)
    name, stated = keys.need("release").text(), keys.need("spec_hash")
    first, last = (item.integer() for item in keys.need("functions").items())
    entries = [_load_operation(item) for item in keys.need("operations").items()]
    protocol = keys.need("protocol").integer()
    frames = {line.name: line for line in map(_load_line, keys.need("frames").items())}
    keys.done()
    found = {operation.id: operation for operation, _ in entries}
    where = {operation.id: where for operation, where in entries}
    release = Release(name, (first, last), found, where, protocol, frames)
    if stated.text() != release.spec_hash.hex():
        raise stated.fail(
            f"the spec hash of these operations is {release.spec_hash.hex()}",
            "Restore the file: what was released is not edited",
        )
    return release


def load(specs: Path = SPECS) -> list[Release]:
    """All releases, oldest first. Raises SpecError if a file was tampered with."""
    found = [_load(path, f"specs/{FOLDER}/{path.name}") for path in sorted((specs / FOLDER).glob("*.yaml"))]
    return sorted(found, key=lambda release: tuple(map(int, release.name.split("."))))


def restricted(spec: Spec, release: Release) -> Spec:
    """Return a copy of the spec that has only the operations of a release."""
    return replace(spec, only=frozenset(release.operations))


def by_name(name: str, specs: Path = SPECS) -> Release:
    """The release of this name. Raises LookupError if there is none."""
    found = {release.name: release for release in load(specs)}
    if name not in found:
        raise LookupError(f"no release {name!r}; known: {', '.join(found)}")
    return found[name]


def changes(spec: Spec, frames: Frames, releases: list[Release]) -> list[str]:
    """Messages about what a release has and the spec lays out otherwise, or does not have any more."""
    now = current(spec, frames)
    return _changed_operations(now, releases) + _changed_frames(now, releases)


def _changed_operations(now: Release, releases: list[Release]) -> list[str]:
    problems = []
    for release in releases:
        for number, operation in release.operations.items():
            found = now.operations.get(number)
            if found is None:
                problem = SpecError(
                    release.where[number],
                    f"operation {number} ({operation.symbol}) of release {release.name} is gone",
                    "Put it back: guests of that release call it",
                )
            elif found.layout != operation.layout:
                problem = SpecError(
                    now.where[number],
                    f"operation {number} is laid out otherwise than in release {release.name}:\n"
                    f"    was {operation.layout}\n    is  {found.layout}",
                    "Put the layout back, and give the new one a new id (`python -m codegen next-id`)",
                )
            else:
                continue
            problems.append(str(problem))
    return problems


def _changed_frames(now: Release, releases: list[Release]) -> list[str]:
    """Another version of the protocol may have other frames: its builds refuse those of this one."""
    problems = []
    for release in releases:
        if release.protocol != now.protocol:
            continue
        for name, line in release.frames.items():
            found = now.frames.get(name)
            if found is None:
                place, cause = line.where, f"{name} of release {release.name} is gone"
            elif found.layout != line.layout:
                place = found.where
                cause = (
                    f"{name} is other than in release {release.name}, which has protocol version "
                    f"{now.protocol} too:\n    was {line.layout}\n    is  {found.layout}"
                )
            else:
                continue
            remedy = "Put it back; or raise `version` in frames.yaml, and no guest of that release is served"
            problems.append(str(SpecError(place, cause, remedy)))
    return problems


def as_text(release: Release) -> str:
    """The contents of a release's file."""
    text = [
        HEAD.format(name=release.name) + f'release: "{release.name}"',
        f'spec_hash: "{release.spec_hash.hex()}"',
        f"functions: [{release.functions[0]}, {release.functions[1]}]",
        "operations:",
    ]
    for _, operation in sorted(release.operations.items()):
        text += [f"  - digest: {operation.digest:#010x}", f'    layout: "{operation.layout}"']
    text += [f"protocol: {release.protocol}", "frames:"]
    text += [f'  - "{line.layout}"' for line in release.frames.values()]
    return "\n".join(text) + "\n"


def write(spec: Spec, frames: Frames, name: str, specs: Path = SPECS) -> Path:
    """Write the file of a new release and return its path. Raises FileExistsError: what was released
    stays.
    """
    if not NAME.fullmatch(name):
        raise LookupError(f"{name!r} is no release: write 0.2 or 0.2.1")
    path = specs / FOLDER / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(as_text(current(spec, frames, name)))
    return path
