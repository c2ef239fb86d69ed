from __future__ import annotations

import pytest

from tests.helpers import certificates as known
from tests.helpers.certificates import Certificates


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    return known.certificates()
