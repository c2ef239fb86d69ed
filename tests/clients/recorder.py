"""Runs one module of a client's tests and writes what becomes of each, as it happens.

Runs in the client's own environment, so it imports nothing of ours:

python recorder.py RECORD unittest MODULE [PATTERN]
python recorder.py RECORD pytest FILE [OPTION ...]

Each line of RECORD is `[test, outcome, message, seconds]`. A test begins with the outcome `begun`, so that
one which ends its process is known. Run again with the same RECORD, it goes on behind the last line.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import time
import traceback
import unittest
from typing import Any

PASSED, FAILED, SKIPPED, BEGUN = "passed", "failed", "skipped", "begun"
WHOLE = ""  # the test whose outcome says that the module came to its end


class Record:
    """What is known of each test. Its first failure is its outcome, whatever its subtests say later."""

    def __init__(self, path: str) -> None:
        self.known: dict[str, str] = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.known = {name: outcome for name, outcome, _, _ in map(json.loads, file)}
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (until the process ends)
        self.current: tuple[str, str] | None = None
        self.began = time.monotonic()

    def begin(self, test: str) -> None:
        self.current, self.began = (PASSED, ""), time.monotonic()
        self.write(test, BEGUN, "")

    def outcome(self, outcome: str, message: str) -> None:
        if self.current is None or self.current[0] != FAILED:
            self.current = (outcome, message)

    def end(self, test: str) -> None:
        assert self.current is not None
        self.write(test, *self.current)
        self.current = None

    def write(self, test: str, outcome: str, message: str) -> None:
        self.known[test] = outcome
        seconds = round(time.monotonic() - self.began, 3)
        self.file.write(json.dumps([test, outcome, message, seconds]) + "\n")
        self.file.flush()


def last_line(error: Any) -> str:
    """Of what an exception says: its type and its first words."""
    return "".join(traceback.format_exception_only(error[0], error[1])).strip()[:600]


def is_skip(error: BaseException) -> bool:
    """Of unittest or of pytest, which its helpers raise in a unittest as well."""
    return type(error).__name__ in ("SkipTest", "Skipped")


class Result(unittest.TestResult):
    """A unittest result that writes each test and its outcome into the record of a module."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def startTest(self, test: unittest.TestCase) -> None:
        self.record.begin(test.id())

    def stopTest(self, test: unittest.TestCase) -> None:
        self.record.end(test.id())

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        if is_skip(err[1]):
            self.addSkip(test, str(err[1]))
            return
        traceback.print_exception(*err)
        if self.record.current is None:  # of a class or a module: there is no test
            self.record.begin(test.id())
            self.record.outcome(FAILED, last_line(err))
            self.record.end(test.id())
        else:
            self.record.outcome(FAILED, last_line(err))

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        if self.record.current is None:  # of a class or a module
            self.record.write(test.id(), SKIPPED, reason)
        else:
            self.record.outcome(SKIPPED, reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.record.outcome(SKIPPED, "expected to fail")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.record.outcome(FAILED, "expected to fail, and passed")


def cases(suite: Any) -> Any:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def run_unittest(record: Record, module: str, pattern: str = "") -> None:
    try:
        found = cases(unittest.TestLoader().loadTestsFromName(module))
    except BaseException as error:
        if not is_skip(error):
            raise
        record.write(module, SKIPPED, str(error))
        return
    left = [t for t in found if fnmatch.fnmatch(t.id(), f"*{pattern}*") and t.id() not in record.known]
    unittest.TestSuite(left).run(Result(record))


class Plugin:
    """A pytest plugin that writes each test and its outcome into the record of a module."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.record.known]

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != PASSED:
            text = str(report.longrepr)[-600:]
            self.record.write(report.nodeid, FAILED if report.failed else SKIPPED, text)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.record.begin(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != PASSED:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else str(report.longrepr)
            self.record.outcome(report.outcome, text[:600])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.record.end(nodeid)


def run_pytest(record: Record, file: str, *chosen: str) -> None:
    import pytest

    # Nothing above the client's own folder, which may lie in a checkout, has a say.
    options = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir=.",
        "--confcutdir=.",
    ]
    pytest.main([*options, *chosen, file], plugins=[Plugin(record)])


def main() -> None:
    path, kind, module, *options = sys.argv[1:]
    sys.path[0] = os.getcwd()  # as `python -m unittest` has it, without this file's own folder
    record = Record(path)
    run: Any = {"unittest": run_unittest, "pytest": run_pytest}[kind]
    run(record, module, *options)
    record.write(WHOLE, PASSED, "")


if __name__ == "__main__":
    main()
