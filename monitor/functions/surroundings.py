"""The environment of a function's replicas: as `gpuferry run` and `gpuferry sim` make it."""

from __future__ import annotations

import os
import secrets

from gpuferry.guest import endpoint, launch, paths

from .config import FunctionsOptions
from .deployment import Deployment


def environment_of(
    options: FunctionsOptions, deployment: Deployment, gpu: int | None = None
) -> dict[str, str]:
    """The environment of one replica. `gpu`: the one that it is to have; None: any. Raises LibraryMissing,
    OSError.

    Without a monitor the guest library is there all the same: a function that never touches CUDA needs none,
    and one that does gets CUDA's error.
    """
    mine = dict(deployment.environment)
    if options.driver == "guest":
        settings = _guest_settings(options, deployment)
        if gpu is not None and deployment.gpus <= 1:
            settings["GPUFERRY_LABELS"] = ",".join(
                [*filter(None, [os.environ.get("GPUFERRY_LABELS", "")]), f"gpu={gpu}"]
            )
        program = {"GPUFERRY_PROGRAM": secrets.token_hex(32)}  # each replica is a program of its own
        return launch.inject(launch.clean_environment() | settings | mine | program, paths.guest_library())
    if options.driver == "sim":
        return launch.inject(launch.simulated_environment() | mine, paths.simulated_driver())
    return launch.without_driver(launch.clean_environment() | mine)


def _guest_settings(options: FunctionsOptions, deployment: Deployment) -> dict[str, str]:
    try:
        found = endpoint.find(options.monitor)
    except endpoint.NoMonitor:
        return {"GPUFERRY_FUNCTION": deployment.name}
    return launch.guest_settings(found, deployment.gpu_memory, deployment.name, gpus=deployment.gpus)
