"""Parsers in C before inputs that were made from the contract and changed: nobody reads or writes outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import native, seeds
from tests.fuzz.building import build

FEW = 4000  # inputs of each target; the corpus is among them
ENOUGH = 100_000  # ends with the first that is found
MANY = 2_000_000
LEAST = {"codec": 100, "handshake": 300, "kernel_table": 40, "link_set": 20, "replies": 200, "sniff": 90}


@pytest.fixture(scope="module")
def program() -> Path:
    return build()


@pytest.mark.parametrize("target", seeds.TARGETS)
def test_few_inputs(program: Path, target: str) -> None:
    """The sound ones reach the code that is meant, or nothing was tested."""
    found = native.run(program, target, FEW)
    assert found.inputs >= FEW
    assert found.branches >= LEAST[target]


def test_an_input_that_took_its_target_over_would_be_in_a_jail(tmp_path: Path) -> None:
    """It sees the folders that it needs, and nothing of the machine."""
    cat, secret = Path("/usr/bin/cat"), tmp_path / "secret"
    secret.write_text("a secret")
    assert native.in_jail(cat, [str(secret)], [tmp_path], []).stdout == "a secret"
    assert native.in_jail(cat, [str(secret)], [], []).returncode == 1
    assert native.in_jail(cat, ["/etc/passwd"], [], []).returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", seeds.TARGETS)
def test_many_inputs(program: Path, target: str) -> None:
    found = native.run(program, target, MANY, seed=2)
    print(f"fuzz: {target}: {found.inputs} inputs, {found.branches} branches")


IMAGE, CUBIN, LINKS = "guest/src/image.c", "native/simdevice/exec/cubin.c", "native/wire/link_set.c"
REDIRECT = "size != sizeof *redirect + redirect->ticket_size + redirect->address_size ||"
ROOM = "if ((size_t)(end - *at) - sizeof header < params + name) {"
PLANTED = {
    "kernel_table": (IMAGE, ROOM, "if (*at == end) {"),
    "link_set": (LINKS, "container.size > left - container.header_size", "0"),
    "replies": ("guest/src/replies.c", "header.size > MOVED_MAX)", "false)"),
    "handshake": ("guest/src/redirect.c", REDIRECT, "false ||"),
    "sniff": (CUBIN, "!sim_extent_holds(file->bytes, file->limit, at, sizeof *section)", "false"),
}


QUICK = ("kernel_table", "replies")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PLANTED]
)
def test_a_check_that_is_left_out_is_found(target: str) -> None:
    """In a copy of the source: so short a run can find what it looks for."""
    source, check, instead = PLANTED[target]
    with pytest.raises(native.Found, match="AddressSanitizer"):
        native.run(build({source: (check, instead)}), target, ENOUGH)
