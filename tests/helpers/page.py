"""The page of a monitor, as programs ask for it."""

from __future__ import annotations

import urllib.request
from pathlib import Path


def published(runtime: str | Path) -> dict[str, str]:
    """What the monitor with this runtime folder published."""
    lines = Path(runtime, "endpoint").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def link(runtime: str | Path) -> str:
    """What `gpuferry page` prints."""
    entries = published(runtime)
    return f"http://{entries['GPUFERRY_HTTP']}/#{Path(entries['GPUFERRY_PAGE_KEY_FILE']).read_text().strip()}"


def fetch(runtime: str | Path, path: str) -> str:
    """The answer, to somebody who has the page's key."""
    address, _, key = link(runtime).partition("/#")
    request = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(answer.read().decode())
