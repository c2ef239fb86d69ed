"""What `gpuferry doctor` says of where things are kept: who can replace them, whether they last, and when."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gpuferry.monitor.cli.checks import keeping, machine
from gpuferry.monitor.cli.checks.open_secrets import open_secrets
from gpuferry.monitor.cli.checks.permissions import replaceable_by_others

SECRET = "q3Jx8mZ0vLr5Ty2Nw7Kc"
MOUNTS = """22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /run rw,nosuid - tmpfs tmpfs rw,mode=755
31 22 0:26 / /srv/ein\\040Ort rw - nfs4 server:/srv rw
32 31 0:27 / /srv/ein\\040Ort/örtlich rw - xfs /dev/vdb rw
"""


def test_what_anybody_can_write_or_replace(tmp_path: Path) -> None:
    file = tmp_path / "open" / "own" / "ca.crt"
    file.parent.mkdir(parents=True)
    file.touch(0o644)
    assert replaceable_by_others("x", file) is None
    (tmp_path / "open").chmod(0o777)
    found = replaceable_by_others("x", file)
    assert found
    assert f"{tmp_path / 'open'}: anybody can write there (mode 0777)" in found.detail
    assert found.next_step == f"`chmod o-w {tmp_path / 'open'}`"
    (tmp_path / "open").chmod(0o1777)  # as /tmp: nobody can rename another's
    assert replaceable_by_others("x", file) is None
    file.chmod(0o666)
    assert replaceable_by_others("x", file)


def test_a_link_is_as_good_as_where_it_leads(tmp_path: Path) -> None:
    folder, link = tmp_path / "open", tmp_path / "token"
    folder.mkdir()
    (folder / "token").touch(0o600)
    link.symlink_to(folder / "token")
    folder.chmod(0o777)
    assert replaceable_by_others("x", link)
    (folder / "token").unlink()
    assert replaceable_by_others("x", link) is None  # it leads nowhere: others say that it is not there
    assert replaceable_by_others("x", Path("/dev/null")) is None  # nothing is kept there


@pytest.mark.parametrize("place", ["state", "run", "config"])
def test_folders_in_which_anybody_can_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    from gpuferry.monitor.cli.checks import settings

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config" / "xdg"))
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path / "run" / "gpuferry"))
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tmp_path / "state" / "gpuferry"))
    for each in ("state/gpuferry", "run/gpuferry", "config/xdg/gpuferry"):
        (tmp_path / each).mkdir(parents=True)
        (tmp_path / each).chmod(0o700)
    (tmp_path / "config/xdg/gpuferry/monitor.toml").write_text("pool = 2\n")

    def found() -> list[str]:
        checks = [*settings.settings_checks(False), *machine.runtime_folder()]
        return [check.detail for check in checks if "anybody can write there" in check.detail]

    assert found() == []
    (tmp_path / place).chmod(0o777)
    (detail,) = found()
    assert str(tmp_path / place) in detail


def test_the_kind_of_a_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    kinds = {"/var/lib": "ext4", "/run/x": "tmpfs", "/runner": "ext4", "/srv/ein Ort/x": "nfs4"}
    kinds["/srv/ein Ort/örtlich/x"] = "xfs"
    assert {path: keeping.file_system(Path(path), mounts) for path in kinds} == kinds
    assert keeping.file_system(tmp_path, tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("kind", "words"), [("tmpfs", "are gone when"), ("nfs4", "on another machine"), ("ext4", "")]
)
def test_a_state_folder_that_does_not_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, words: str
) -> None:
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(keeping, "file_system", lambda _: kind)
    found = [check for check in machine.state_folder() if check.name == "disk of the state folder"]
    assert [words in check.detail and "--state" in check.next_step for check in found] == [True] * bool(words)


def test_a_clock_that_was_set_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tmp_path))
    store = tmp_path / "gpuferry.db"
    store.touch()

    def found() -> list[str]:
        return [check.detail for check in machine.state_folder() if check.name == "clock"]

    assert found() == []
    os.utime(store, (time.time() + 7200,) * 2)
    (detail,) = found()
    assert f"2.0 h behind what it was when {store} was written" in detail


def process(folder: Path, number: int, *command: str) -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "cmdline").write_bytes("\0".join(command).encode() + b"\0")
    (folder / str(number) / "comm").write_text(Path(command[0]).name + "\n")


def test_secrets_in_command_lines(tmp_path: Path) -> None:
    process(tmp_path, 7, "/usr/bin/docker", "run", "-e", f"GPUFERRY_TOKEN={SECRET}", "image")
    process(tmp_path, 8, "/bin/sh", "-c", f"GPUFERRY_CLUSTER_KEY='{SECRET}' gpuferry registry")
    process(tmp_path, 9, "/bin/sh", "-c", 'GPUFERRY_TOKEN="$TOKEN_OF_THE_MONITOR" gpuferry monitor')
    process(tmp_path, 10, "gpuferry", "run", "--token-file", "/etc/gpuferry/a-long-name-of-a-token")
    (tmp_path / "11").mkdir()  # has ended
    found = list(open_secrets(tmp_path, ()))
    assert [check.detail for check in found] == [
        "GPUFERRY_TOKEN is in the command line of process 7 (docker)",
        "GPUFERRY_CLUSTER_KEY is in the command line of process 8 (sh)",
    ]
    assert "GPUFERRY_TOKEN_FILE" in found[0].next_step
    assert SECRET not in "".join(check.detail + check.next_step for check in found)


def test_secrets_in_units(tmp_path: Path) -> None:
    units, lines = tmp_path / "units", f"GPUFERRY_TOKEN={SECRET}\n"
    (units / "other.service.d").mkdir(parents=True)
    closed, opened = tmp_path / "closed.env", tmp_path / "open.env"
    for file, mode in ((closed, 0o600), (opened, 0o644)):
        file.write_text(lines)
        file.chmod(mode)
    (units / "job.service").write_text(f"[Service]\n# Environment={lines}Environment='{lines.strip()}'\n")
    (units / "other.service").write_text(f"[Service]\n# Environment={lines}EnvironmentFile={closed}\n")
    (units / "other.service.d/more.conf").write_text(f"[Service]\nEnvironmentFile=-{opened}\n")
    (units / "gone.service").write_text(f"[Service]\nEnvironmentFile=-{tmp_path}/none\n")
    (units / "alias.service").symlink_to(units / "other.service")
    found = [check.detail for check in open_secrets(tmp_path / "no-processes", (units, units))]
    assert found == [
        f"GPUFERRY_TOKEN is in the unit {units}/job.service",
        f"GPUFERRY_TOKEN is in {opened}, which others can read (mode 0644)",
    ]
