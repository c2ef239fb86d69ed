"""The client of a registry: where it is, signed calls, errors in the CLI's words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gpuferry.guest import endpoint

from ..cluster.key import read_cluster_key
from ..settings.folders import state_directory
from . import reach
from .errors import CliError, Exit
from .identity import identity_for, insecure

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log lines would come between ours

import grpc

from ..cluster.registry.client import UNREACHABLE, CallFailed, answers
from ..cluster.registry.signing import Caller
from ..service.dial import check_way, dial

_STATUS = {
    grpc.StatusCode.NOT_FOUND: Exit.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED: Exit.DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
}


class Cluster:
    """A registry, as a client sees it: calls go to the first replica that answers."""

    def __init__(self, registry: str | None, key_file: str | None, timeout: float) -> None:
        named = registry or os.environ.get("GPUFERRY_REGISTRY")
        published = reach.published(endpoint.REGISTRY, None if named else ["registry"])
        where = named or published.get("GPUFERRY_REGISTRY")
        if not where:
            raise CliError(
                Exit.UNREACHABLE,
                "no registry: none was named, and none published itself here",
                "start one with `gpuferry registry`, or set GPUFERRY_REGISTRY=HOST:PORT (its --control)",
            )
        where = ",".join(replica.strip() for replica in where.split(","))
        file = key_file or os.environ.get("GPUFERRY_CLUSTER_KEY_FILE")
        given = file or os.environ.get("GPUFERRY_CLUSTER_KEY")
        ours = where == published.get("GPUFERRY_REGISTRY")
        if ours and not given:
            file = published.get("GPUFERRY_CLUSTER_KEY_FILE")
        key = read_cluster_key(file, Path(state_directory()))
        if key is None:
            raise CliError(
                Exit.DENIED,
                f"no cluster key for the registry at {where}",
                "set GPUFERRY_CLUSTER_KEY_FILE to a copy of the registry's (its log says where that is)",
            )
        self.where = where
        self._identity = identity_for(where.split(","), published if ours else {})
        self._insecure = insecure()
        for replica in where.split(","):
            check_way(replica, self._identity, self._insecure)
        self._caller = Caller(key)
        self._timeout = timeout

    def call(self, method: str, request: Any) -> Any:
        """Call a method that has one answer. Raises CliError."""
        failure = CallFailed(grpc.StatusCode.UNAVAILABLE, "it has no address", False)
        for where in self.where.split(","):
            with dial(where, self._identity, self._insecure) as channel:
                try:
                    (answer,) = answers(channel, self._caller, where, method, request, self._timeout)
                    return answer
                except CallFailed as error:
                    failure = error
            if failure.genuine:
                break
        if failure.code in UNREACHABLE:
            raise CliError(
                Exit.UNREACHABLE,
                f"cannot reach the registry at {self.where}: {failure}",
                "is `gpuferry registry` running there?",
            )
        if failure.genuine:
            raise CliError(_STATUS.get(failure.code, Exit.FAILED), str(failure))
        what, hint = (
            f"the registry at {self.where}: {failure}",
            "is GPUFERRY_CLUSTER_KEY_FILE that registry's?",
        )
        raise CliError(_STATUS.get(failure.code, Exit.FAILED), what, hint)
