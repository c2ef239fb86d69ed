"""What is loaded into programs loads in old images: it asks for nothing newer than glibc 2.17."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from gpuferry.guest import paths

OLDEST = (2, 17)


def nvml() -> str:
    """The guest's libnvidia-ml.so.1."""
    return os.path.join(os.path.dirname(paths.guest_library()), "libnvidia-ml.so.1")


pytestmark = pytest.mark.skipif(
    "GPUFERRY_SANITIZER" in os.environ, reason="a sanitizer's build is for this machine alone"
)


def symbols(path: str) -> Iterator[tuple[str, str]]:
    """What the library needs of others: names, and the version of each (empty: none)."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        needed: GNUVerNeedSection = elf.get_section_by_name(".gnu.version_r")
        versions = {
            auxiliary["vna_other"]: auxiliary.name
            for _, auxiliaries in needed.iter_versions()
            for auxiliary in auxiliaries
        }
        indices = elf.get_section_by_name(".gnu.version")
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name:
                index = indices.get_symbol(number)["ndx"]
                yield symbol.name, versions.get(index, "") if isinstance(index, int) else ""


@pytest.mark.parametrize("library", [paths.guest_library, nvml])
def test_no_symbol_is_newer(library: Callable[[], str]) -> None:
    found = dict(symbols(library()))
    assert found["memcpy"].startswith("GLIBC_"), "it looks at nothing"
    for name, version in found.items():
        if version.startswith("GLIBC_"):
            number = tuple(map(int, version.removeprefix("GLIBC_").split(".")))
            assert number <= OLDEST, (
                f"{name}@{version} is not in glibc 2.17: if it has an older version, name it in "
                "native/old_glibc.h; else call the kernel by syscall()"
            )
        else:
            assert not version, f"{name}@{version}"


@pytest.mark.parametrize("library", [paths.guest_library, nvml])
def test_where_old_glibc_has_threads(library: Callable[[], str]) -> None:
    with open(library(), "rb") as file:
        dynamic: DynamicSection = ELFFile(file).get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        tags = {tag.entry.d_tag for tag in dynamic.iter_tags()}
    assert {"libpthread.so.0", "libdl.so.2", "libc.so.6"} <= needed
    assert "DT_RELR" not in tags, "old loaders do not know relative relocations in short form"
