"""Compiled kernels of the simulated device: native code, shared by those who trust each other.

Where the operator alone sends sessions, all jails have one folder of them, in which a group may write. With
tenants each has its own, in memory, which ends with it: nobody runs what another compiled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PLACE = "/cache"
OWN = "/tmp/ptx"
OWN_BYTES = 128 << 20


def prepare(environment: Mapping[str, str], group: int) -> Path | None:
    """The folder that all jails share, made for this group, 0: the monitor's. None: it cannot be made."""
    chosen, base, home = (environment.get(name) for name in ("GPUFERRY_SIM_CACHE", "XDG_CACHE_HOME", "HOME"))
    folder = Path(chosen or (f"{base}/gpuferry/ptx" if base else f"{home}/.cache/gpuferry/ptx"), "jails")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if group:
            os.chown(folder, -1, group)
            folder.chmod(0o2770)
    except OSError:
        return None
    return folder


def settings(shared: Path | None) -> dict[str, str]:
    """What the simulated device is told of it."""
    if shared:
        return {"GPUFERRY_SIM_CACHE": PLACE, "GPUFERRY_SIM_CACHE_SHARED": "1"}
    return {"GPUFERRY_SIM_CACHE": OWN, "GPUFERRY_SIM_CACHE_BYTES": str(OWN_BYTES)}
