from __future__ import annotations

import pytest
from gpuferry.monitor.service import authority

from tests.helpers.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server on loopback, and somebody who only calls."""
    folder = tmp_path_factory.mktemp("tls")
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    authority.issue(folder, "client", [], client=True)
    return Certificates(folder)
