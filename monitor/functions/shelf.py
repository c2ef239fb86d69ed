"""Deployments on disk: they are there when the server starts again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path

import structlog

from ..service.files import make_folder, write_atomically
from .deployment import Deployment, WrongDeployment, is_name, read

RECORD = "deployment.json"
LOCK = ".lock"  # as no function is called; one was, as long as the file was
LOCK_BEFORE = "lock"
log = structlog.get_logger()


class InUse(Exception):
    """Another function server has the folder."""


class Shelf:
    """A folder for each function: a record, and a folder for each revision of its file. Of one server at a
    time: another's removals would take files from under its replicas.
    """

    def __init__(self, folder: Path) -> None:
        """Raises InUse, OSError."""
        self._folder = folder
        make_folder(folder)
        self._lock = _locked(folder / LOCK)
        try:
            if (before := folder / LOCK_BEFORE).is_file():
                os.close(_locked(before))  # of a server that has ended
                before.unlink()
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def beside(cls, folder: Path) -> Shelf:
        """The first of `folder`-1, `folder`-2, … that no other server has. Raises OSError."""
        number = 1
        while True:
            with contextlib.suppress(InUse):
                return cls(folder.with_name(f"{folder.name}-{number}"))
            number += 1

    def close(self) -> None:
        """Release the folder's lock: another server may have it."""
        os.close(self._lock)

    def stage(self, deployment: Deployment) -> None:
        """Write this revision's file, from which replicas can start. Raises OSError."""
        file = self.file(deployment)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if deployment.source:
            write_atomically(file, deployment.source)

    def mend(self, deployment: Deployment) -> None:
        """See that the revision's file is there, as the record has it. Raises OSError; but one that is there
        takes no room, which a full disk does not have.
        """
        if deployment.source and not self._has(deployment):
            self.stage(deployment)

    def _has(self, deployment: Deployment) -> bool:
        try:
            return self.file(deployment).read_bytes() == deployment.source.encode()
        except FileNotFoundError:
            return False

    def drop(self, deployment: Deployment) -> None:
        """Remove a revision's file, and with the last one the function's folder, if it has no record."""
        shutil.rmtree(self.file(deployment).parent, ignore_errors=True)
        with contextlib.suppress(OSError):  # there is more in it
            (self._folder / deployment.name).rmdir()

    def put(self, deployment: Deployment) -> None:
        """Keep this revision, which is staged. Raises OSError; then the one before stays."""
        write_atomically(self._folder / deployment.name / RECORD, json.dumps(deployment.as_json()))

    def file(self, deployment: Deployment) -> Path:
        """Return the path of a revision's source."""
        return self._folder / deployment.name / f"revision-{deployment.revision}" / deployment.file

    def remove(self, name: str) -> None:
        """Forget a function: first its record, so that it is gone even if the rest stays. Raises OSError, and
        nothing is gone.
        """
        record = self._folder / name / RECORD
        if record.exists():  # what comes out of a store has none
            record.unlink()
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def all(self) -> list[Deployment]:
        """What was deployed. A record that cannot be read is left where it is, and the log says so; a file
        that is lost is written anew.
        """
        found = []
        for record in sorted(self._folder.glob(f"*/{RECORD}")):
            try:
                deployment = read(json.loads(record.read_text()))
                if deployment.name != record.parent.name or not is_name(record.parent.name):
                    raise WrongDeployment("it is of another function")
            except (OSError, ValueError, RecursionError) as error:
                log.error("a deployment cannot be read", file=str(record), error=str(error))
            else:
                found.append(deployment)
                self._mend_if_possible(deployment)
        return found

    def _mend_if_possible(self, deployment: Deployment) -> None:
        try:
            self.mend(deployment)
        except OSError as error:  # no replica of it starts
            log.error("a function's file is lost", function=deployment.name, error=str(error))


def _locked(file: Path) -> int:
    """A descriptor of the file, which is locked as long as that is open. Raises InUse, OSError."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InUse(str(file.parent)) from None
    return descriptor
