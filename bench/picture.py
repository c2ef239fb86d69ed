"""The demo's photograph, in and out of the PPM files that the k-means program reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image, ImageDraw


def photograph() -> Image.Image:
    """A portrait of Grace Hopper (public domain) that the matplotlib wheel carries."""
    from matplotlib import get_data_path

    return Image.open(Path(get_data_path()) / "sample_data" / "grace_hopper.jpg").convert("RGB")


def colours(report: str) -> list[str]:
    """The cluster colours in a k-means report as (red, green, blue), brightest first."""
    found = re.findall(r"#[0-9a-f]{6}", report)
    return sorted(found, key=lambda colour: -sum(bytes.fromhex(colour[1:])))


def side_by_side(before: Image.Image, after: Image.Image, palette: list[str]) -> Image.Image:
    """A picture of before, after, and a strip of the colours found."""
    strip = 40
    sheet = Image.new("RGB", (before.width + after.width, before.height + strip), "white")
    sheet.paste(before, (0, 0))
    sheet.paste(after, (before.width, 0))
    draw = ImageDraw.Draw(sheet)
    width = sheet.width / len(palette)
    for i, colour in enumerate(palette):
        draw.rectangle((i * width, before.height, (i + 1) * width, sheet.height), fill=colour)
    return sheet
