"""What was released stays: a change of it is told with its place, and a release can be generated again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codegen import frames, released, released_frames
from codegen.emit import releases
from codegen.generate import ROOT, outputs, write
from codegen.load import SPECS, load
from codegen.model import SpecError

from .spec_edits import edited

SESSION = "gpuferry/session.yaml"
FENCE = "      - symbol: sessionFence\n        since: 1\n        id: 4\n"
FIRST_HASH = "30bdfc20cdca29a0a41242b06fc7cbb38b0ffb6aa8a81f327ea849828aa838d8"


def test_the_first_release_is_what_its_guests_say() -> None:
    """The hash that every library built from release 0.1 carries."""
    (first, *_) = released.load()
    assert (first.name, first.spec_hash.hex(), len(first.operations)) == ("0.1", FIRST_HASH, 55)
    assert first.functions == (256, 835)


def test_no_release_was_changed() -> None:
    assert released.changes(load(), frames.load(), released.load()) == []


def test_an_added_operation_is_no_change(tmp_path: Path) -> None:
    added = FENCE.replace("sessionFence", "sessionOther").replace("id: 4", "id: 198")
    text = f"  sessionOther:\n    group: session\n    variants:\n{added}"
    text += "        signature: void sessionOther(void)\n        class: async\n"
    text += "        server: custom\n        replay: none\n"
    specs, _ = edited(tmp_path, SESSION, "  sessionFence:\n", f"{text}\n  sessionFence:\n")
    spec = load(specs)
    assert 199 in released.operations(spec)
    assert released.changes(spec, frames.load(), released.load()) == []


def test_a_changed_layout_is_refused(tmp_path: Path) -> None:
    """With the place of what changed, both layouts, and what to do instead."""
    old = "void sessionMemMap(uint64_t address, uint64_t size)"
    specs, line = edited(tmp_path, SESSION, old, old.replace("uint64_t size", "uint32_t size"))
    (problem,) = released.changes(load(specs), frames.load(), released.load())
    place, *rest = problem.splitlines()
    assert place.startswith(
        f"specs/{SESSION}:{line - 3}: operation 2 is laid out otherwise than in release 0.1"
    )
    assert "was 2 sessionMemMap async request(address:u64,size:u64;)" in problem
    assert "is  2 sessionMemMap async request(address:u64,size:u32;)" in problem
    assert "give the new one a new id" in rest[-1]


def test_a_call_that_waits_now_is_another_one(tmp_path: Path) -> None:
    old = "signature: void sessionFence(void)\n        class: async"
    specs, _ = edited(tmp_path, SESSION, old, old.replace("async", "sync").replace("void s", "CUresult s"))
    (problem,) = released.changes(load(specs), frames.load(), released.load())
    assert "operation 4 is laid out otherwise" in problem


def test_a_removed_operation_is_refused(tmp_path: Path) -> None:
    specs, _ = edited(tmp_path, SESSION, "        id: 4\n", "        id: 198\n")
    (problem,) = released.changes(load(specs), frames.load(), released.load())
    assert problem.startswith("specs/released/0.1.yaml:")
    assert "operation 4 (sessionFence) of release 0.1 is gone" in problem
    assert "Put it back" in problem


def test_check_refuses_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`codegen --check` says it among all else."""
    import codegen.__main__ as main

    specs, _ = edited(tmp_path, SESSION, "        id: 4\n", "        id: 198\n")
    changed = frames.load(edited(tmp_path / "frames", FRAMES, "    op: 0xFF07\n", "    op: 0xFF17\n")[0])
    monkeypatch.setattr(main, "load", lambda: load(specs))
    monkeypatch.setattr(frames, "load", lambda: changed)
    assert main.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "operation 4 (sessionFence) of release 0.1 is gone" in said
    assert "frame QUEUED is other than in release 0.1" in said


FRAMES = "gpuferry/frames.yaml"


@pytest.mark.parametrize(
    ("old", "new", "named", "was", "now"),
    [
        (
            "      position: {type: u32",
            "      position: {type: u64",
            "frame QUEUED",
            "position:u32",
            "position:u64",
        ),
        ("    op: 0xFF07\n", "    op: 0xFF17\n", "frame QUEUED", "0xff07", "0xff17"),
        (
            "HANDSHAKE_FRAME_MAX: {value: 64 KiB",
            "HANDSHAKE_FRAME_MAX: {value: 63 KiB",
            "constant",
            "65536",
            "64512",
        ),
        ("{value: 5}", "{value: 15}", "reason BAD_REQUEST", " 5", " 15"),
        ("{kind: 3, value: u32", "{kind: 3, value: bytes", "extension MAX_WAIT", "4 bytes", "any bytes"),
        ('value: {type: "u8[64]"', 'value: {type: "u8[56]"', "struct launch_attribute", "u8[64]", "u8[56]"),
    ],
    ids=["a field", "a number", "a limit", "a reason", "an extension", "a struct that an operation carries"],
)
def test_a_changed_frame_is_refused(
    tmp_path: Path, old: str, new: str, named: str, was: str, now: str
) -> None:
    """As long as the protocol's version is the same: a build cannot tell it from the released one."""
    specs, line = edited(tmp_path, FRAMES, old, new)
    (problem,) = released.changes(load(), frames.load(specs), released.load())
    place, *rest = problem.splitlines()
    assert place.startswith(f"specs/{FRAMES}:")
    assert 0 <= line - int(place.split(":")[1]) <= 4
    assert f"{named}" in place
    assert "is other than in release 0.1, which has protocol version 1 too" in place
    assert was in rest[0]
    assert now in rest[1]
    assert "raise `version` in frames.yaml" in rest[-1]


def test_a_frame_that_is_gone_is_refused(tmp_path: Path) -> None:
    specs, _ = edited(tmp_path, FRAMES, "  QUEUED:\n", "  LINED_UP:\n")
    (problem,) = released.changes(load(), frames.load(specs), released.load())
    assert problem.startswith("specs/released/0.1.yaml:")
    assert "frame QUEUED of release 0.1 is gone" in problem


def test_another_version_of_the_protocol_has_other_frames(tmp_path: Path) -> None:
    specs, _ = edited(tmp_path, FRAMES, "      position: {type: u32", "      position: {type: u64")
    path = specs / FRAMES
    path.write_text(
        path.read_text(encoding="utf-8").replace("version: 1\n", "version: 2\n", 1), encoding="utf-8"
    )
    assert released.changes(load(), frames.load(specs), released.load()) == []


def copied(folder: Path, old: str, new: str) -> tuple[Path, int]:
    """A folder of specs with the first release, edited; and where."""
    text = (SPECS / released.FOLDER / "0.1.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (folder / released.FOLDER).mkdir()
    (folder / released.FOLDER / "0.1.yaml").write_text(text.replace(old, new), encoding="utf-8")
    return folder, text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("2 sessionMemMap async", "2 sessionMemMap sync", "operation 2 has another digest than its layout"),
        ("digest: 0x15d276ee", "digest: 0x15d276ef", "operation 1 has another digest than its layout"),
        (FIRST_HASH, "00" * 32, f"the spec hash of these operations is {FIRST_HASH}"),
        ("operations:\n", "operatoins:\n", "missing key 'operations'"),
    ],
    ids=["layout", "digest", "hash", "key"],
)
def test_a_release_is_not_edited(tmp_path: Path, old: str, new: str, cause: str) -> None:
    specs, _ = copied(tmp_path, old, new)
    with pytest.raises(SpecError, match=cause) as caught:
        released.load(specs)
    assert str(caught.value).startswith("specs/released/0.1.yaml:")


def test_a_release_is_written_once(tmp_path: Path) -> None:
    spec = load()
    path = released.write(spec, frames.load(), "0.2", tmp_path)
    (found,) = released.load(tmp_path)
    assert (found.name, found.operations) == ("0.2", released.operations(spec))
    now = released_frames.lines(frames.load())
    assert found.protocol == frames.load().version
    assert [line.layout for line in found.frames.values()] == [line.layout for line in now.values()]
    assert found.spec_hash == released.current(spec, frames.load()).spec_hash
    with pytest.raises(FileExistsError):
        released.write(spec, frames.load(), "0.2", tmp_path)
    with pytest.raises(LookupError, match="no release"):
        released.write(spec, frames.load(), "next", tmp_path)
    assert path.name == "0.2.yaml"


def test_releases_come_in_their_order(tmp_path: Path) -> None:
    for name in ("0.10", "0.9", "0.2.1"):
        released.write(load(), frames.load(), name, tmp_path)
    assert [release.name for release in released.load(tmp_path)] == ["0.2.1", "0.9", "0.10"]
    with pytest.raises(LookupError, match=r"no release '0\.3'; known: 0\.2\.1, 0\.9, 0\.10"):
        released.by_name("0.3", tmp_path)


def test_a_build_as_of_a_release(tmp_path: Path) -> None:
    """It says that release's hash, and speaks nothing that came later."""
    spec = released.restricted(load(), released.by_name("0.1"))
    files = outputs(spec)
    wire = files["specs/_generated/wire.py"]
    assert FIRST_HASH in wire
    told = files["native/_generated/gpuferry/operations.h"]
    assert f'#define GF_VERSION_TEXT "gpuferry 0.1 ({FIRST_HASH[:8]})"' in told
    assert "#define GF_SPOKEN_COUNT 55\n" in told
    later = released.operations(load()).keys() - released.operations(spec).keys()
    assert later, "the spec has nothing that the first release had not: this says nothing"
    assert not any(f"X({number}, 0x" in told for number in later)
    write(files, tmp_path)
    assert (tmp_path / "guest/_generated/needs.c").exists()


@pytest.mark.system
def test_the_command_generates_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codegen", "--release", "0.1", "--into", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    assert FIRST_HASH in (tmp_path / "specs/_generated/wire.py").read_text(encoding="utf-8")
    assert FIRST_HASH not in (ROOT / "specs/_generated/wire.py").read_text(encoding="utf-8")


def test_what_functions_go_by() -> None:
    spec = load()
    found: dict[str, set[int]] = {}
    for symbol, number in releases.needs(spec):
        found.setdefault(symbol, set()).add(number)
    assert found["cuStreamCreateWithPriority"] == {spec.by_symbol["cuStreamCreateWithPriority"].id}
    assert spec.by_symbol["sessionMemMap"].id in found["cuMemAlloc_v2"]
    assert "cuDriverGetVersion" not in found
