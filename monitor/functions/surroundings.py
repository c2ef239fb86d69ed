"""The environment of a function's replicas: as `gpuferry run` and `gpuferry sim` make it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from gpuferry.guest import endpoint, launch, paths

from .config import FunctionsOptions
from .deployment import Deployment

# What the server may have been given in its environment, and what a function needs of it comes anew.
SECRETS = frozenset(
    {
        *("GPUFERRY_FUNCTIONS_TOKEN", "GPUFERRY_FUNCTIONS_TOKEN_FILE"),
        *("GPUFERRY_TOKEN", "GPUFERRY_TOKEN_FILE", "GPUFERRY_CLUSTER_KEY", "GPUFERRY_CLUSTER_KEY_FILE"),
    }
)


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
        begin = _without_secrets(launch.clean_environment())
        return launch.inject(begin | settings | mine | program, paths.guest_library())
    if options.driver == "sim":
        begin = _without_secrets(launch.simulated_environment())
        return launch.inject(begin | mine, paths.simulated_driver())
    return launch.without_driver(_without_secrets(launch.clean_environment()) | mine)


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in SECRETS}


def _guest_settings(options: FunctionsOptions, deployment: Deployment) -> dict[str, str]:
    try:
        found = endpoint.find(options.monitor, patient=False)
    except endpoint.NoMonitor:
        return {"GPUFERRY_FUNCTION": deployment.name}
    return launch.guest_settings(found, deployment.gpu_memory, deployment.name, gpus=deployment.gpus)
