"""The client of a registry: where it is, signed calls, errors in the CLI's words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuferry.guest import endpoint

from ..cluster.key import read_cluster_key
from ..settings.folders import state_directory
from .errors import CliError, Exit

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log lines would come between ours

import grpc
from gpuferry.specs._generated import registry_pb2_grpc

from ..cluster.registry.daemon import runtime_of
from ..cluster.registry.service import SERVICE
from ..cluster.registry.signing import sign

_STATUS = {
    grpc.StatusCode.NOT_FOUND: Exit.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED: Exit.DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
}
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Cluster:
    """A registry, as a client sees it: calls go to the first replica that answers."""

    def __init__(self, registry: str | None, key_file: str | None, timeout: float) -> None:
        published = endpoint.published(str(runtime_of(endpoint.runtime_directory())))
        where = registry or os.environ.get("GPUFERRY_REGISTRY") or published.get("GPUFERRY_REGISTRY")
        if not where:
            raise CliError(
                Exit.UNREACHABLE,
                "no registry: none was named, and none published itself here",
                "start one with `gpuferry registry`, or set GPUFERRY_REGISTRY=HOST:PORT (its --control)",
            )
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
        self._key = key
        self._timeout = timeout

    def call(self, method: str, request: Any) -> Any:
        """Call a method that has one answer. Raises CliError."""
        (answer,) = self._ask(method, request, streaming=False)
        return answer

    def follow(self, method: str, request: Any) -> Iterator[Any]:
        """Call a method that goes on answering, until the caller has enough or the registry ends."""
        return self._ask(method, request, streaming=True)

    def _ask(self, method: str, request: Any, streaming: bool) -> Iterator[Any]:
        for where in self.where.split(","):
            with grpc.insecure_channel(where) as channel:
                ask = getattr(registry_pb2_grpc.RegistryStub(channel), method)
                metadata = sign(self._key, f"/{SERVICE}/{method}", request)
                try:
                    answer = ask(request, timeout=None if streaming else self._timeout, metadata=metadata)
                    yield from answer if streaming else [answer]
                    return
                except grpc.RpcError as error:
                    failure = (error.code(), error.details())
            if failure[0] not in _UNREACHABLE:
                break
        code, details = failure
        if code in _UNREACHABLE:
            raise CliError(
                Exit.UNREACHABLE,
                f"cannot reach the registry at {self.where}: {details or code.name}",
                "is `gpuferry registry` running there?",
            )
        raise CliError(_STATUS.get(code, Exit.FAILED), str(details))
