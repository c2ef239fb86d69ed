"""One browser for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .browser import Browser


@pytest.fixture(scope="session")
def _browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def browser(_browser: Browser) -> Iterator[Browser]:
    _browser.look(1280)
    yield _browser
    _browser.leave()
