"""The recorder writes what becomes of each test, and goes on where a process ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .results import complete, read
from .running import RECORDER

CASES = """
import os, unittest

class Some(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_fails(self): self.assertEqual(1, 2)
    def test_c_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
    def test_d_ends_the_process(self): os._exit(7)
    def test_e_skips(self): self.skipTest("no cubin")
    @unittest.expectedFailure
    def test_f_as_expected(self): raise ValueError
    def test_g_passes(self): pass

class Unready(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise RuntimeError("no device")
    def test_never(self): pass
"""
FUNCTIONS = """
import os, pytest

def test_passes(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_numbers(number): assert number == 1
@pytest.fixture
def broken(): raise RuntimeError("no device")
def test_fixture(broken): pass
def test_ends_the_process(): os._exit(7)
def test_skips(): pytest.skip("no cubin")
def test_last(): pass
"""


def record(tmp_path: Path, source: str, *arguments: str) -> dict[str, str]:
    (tmp_path / "test_some.py").write_text(source)
    path = tmp_path / "record.jsonl"
    for _ in range(2):  # one test ends the process
        assert not complete(path)
        subprocess.run(
            [sys.executable, RECORDER, path, *arguments], cwd=tmp_path, check=False, capture_output=True
        )
    assert complete(path)
    return {test.rpartition(".")[2].rpartition("::")[2]: outcome for test, (outcome, _) in read(path).items()}


def test_unittest(tmp_path: Path) -> None:
    assert record(tmp_path, CASES, "unittest", "test_some") == {
        "": "passed",
        "test_a_passes": "passed",
        "test_b_fails": "failed",
        "test_c_subtests": "failed",
        "test_d_ends_the_process": "failed",
        "test_e_skips": "skipped",
        "test_f_as_expected": "skipped",
        "test_g_passes": "passed",
        "Unready)": "failed",
    }


def test_unittest_by_name(tmp_path: Path) -> None:
    found = record(tmp_path, CASES, "unittest", "test_some", "_ends_the_process")
    assert found == {"": "passed", "test_d_ends_the_process": "failed"}


@pytest.mark.system
def test_pytest(tmp_path: Path) -> None:
    assert record(tmp_path, FUNCTIONS, "pytest", "test_some.py") == {
        "": "passed",
        "test_passes": "passed",
        "test_numbers[1]": "passed",
        "test_numbers[2]": "failed",
        "test_fixture": "failed",
        "test_ends_the_process": "failed",
        "test_skips": "skipped",
        "test_last": "passed",
    }


def test_a_module_that_cannot_be_imported_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    subprocess.run([sys.executable, RECORDER, path, "unittest", "not_there"], check=True, capture_output=True)
    assert complete(path)
    ((_, (outcome, message)),) = ((test, said) for test, said in read(path).items() if test)
    assert outcome == "failed"
    assert "not_there" in message
