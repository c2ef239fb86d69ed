from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry.etcd import Etcd, etcd


@pytest.fixture(scope="session")
def etcd_cluster() -> Iterator[Etcd]:
    """Three members, for tests that kill none."""
    with etcd(3) as cluster:
        yield cluster
