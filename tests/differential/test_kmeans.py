"""The demo's k-means program against the same arithmetic in numpy, natively and through gpuferry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import picture
from tests.helpers import toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import native_environment, run, skip_environment

SOURCE = ROOT / "bench" / "workloads" / "kmeans" / "kmeans.cu"
CLUSTERS, SCALE = 16, 16
Pixels = NDArray[np.int64]


def expected(pixels: Pixels) -> Pixels:
    """The pixels in the colours of their clusters."""
    count = len(pixels)
    centroids = np.array([pixels[(2 * i + 1) * count // (2 * CLUSTERS)] * SCALE for i in range(CLUSTERS)])
    labels = np.full(count, -1)
    while True:
        distances = ((pixels[:, None, :] * SCALE - centroids[None]) ** 2).sum(2)
        nearest = distances.argmin(1)
        for i in range(CLUSTERS):
            members = pixels[nearest == i]
            if len(members):
                centroids[i] = members.sum(0) * SCALE // len(members)
        if (nearest == labels).all():
            painted: Pixels = (centroids[labels] + SCALE // 2) // SCALE
            return painted
        labels = nearest


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kmeans") / "small.ppm"
    picture.photograph().resize((80, 94)).save(path)
    return path


def pixels_of(path: Path) -> Pixels:
    from PIL import Image

    return np.asarray(Image.open(path)).reshape(-1, 3).astype(np.int64)


@pytest.mark.system
def test_kmeans(photograph: Path, tmp_path: Path, shared_monitor: Monitor) -> None:
    """Bit for bit the same, three times."""
    program = toolchain.program(SOURCE)
    native = run([program, photograph, tmp_path / "native.ppm"], native_environment())
    remote = shared_monitor.run([program, photograph, tmp_path / "remote.ppm"])
    assert (native.status, remote.status) == (0, 0), native.stderr + remote.stderr
    assert "converged" in native.stdout
    assert remote.stdout == native.stdout
    assert (pixels_of(tmp_path / "native.ppm") == expected(pixels_of(photograph))).all()
    assert (tmp_path / "remote.ppm").read_bytes() == (tmp_path / "native.ppm").read_bytes()


@pytest.mark.system
def test_kmeans_needs_work(photograph: Path, tmp_path: Path) -> None:
    """On a driver that does no work the picture is another one."""
    output = tmp_path / "skipped.ppm"
    run([toolchain.program(SOURCE), photograph, output, "5"], skip_environment())
    assert (pixels_of(output) != expected(pixels_of(photograph))).any()
