"""A private authority for the monitors of a test process."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from gpuferry.monitor.service import authority

from tests.tls.certificates import Certificates


@functools.cache
def certificates() -> Certificates:
    """For a server on loopback, and somebody who only calls."""
    folder = Path(tempfile.mkdtemp(prefix="gpuferry-tls-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    authority.issue(folder, "client", [], client=True)
    return Certificates(folder)
