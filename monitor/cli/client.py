"""The gRPC client of a monitor's control service."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import CliError, Exit
from .identity import identity_for, insecure
from .reach import ANSWER_SECONDS, check_token, locate, published, unreachable

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log lines would come between ours

import grpc
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

from ..service.dial import dial, why_unreachable

NOT_FOUND = "see `gpuferry session list`"
SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
PROBE_SECONDS = 10.0  # between looks whether the monitor still answers
Metadata = tuple[tuple[str, str], ...]


@contextmanager
def monitor_client(
    control: str | None, token_file: str | None, not_found: str = NOT_FOUND
) -> Iterator[tuple[control_pb2_grpc.MonitorStub, Metadata]]:
    """A stub and the metadata for its calls; gRPC's errors come out as ours. `not_found`: the hint
    of the error when the monitor does not know what it is asked for.
    """
    found = locate(control, token_file, "GPUFERRY_CONTROL")
    check_token(found.token or "", found.address)
    try:
        here = published()
        ours = found.address == here.get("GPUFERRY_CONTROL")
        address = (here.get("GPUFERRY_CONTROL_HERE") if ours else None) or found.address
        identity = identity_for((address,), here if ours else {})
        with dial(address, identity, insecure()) as channel:
            yield control_pb2_grpc.MonitorStub(channel), (("authorization", f"Bearer {found.token}"),)
    except grpc.FutureCancelledError:  # by `attended`
        raise unreachable(found, why_unreachable(grpc.StatusCode.CANCELLED, None)) from None
    except grpc.RpcError as error:
        code = error.code()
        if code is grpc.StatusCode.UNAUTHENTICATED:
            raise CliError(
                Exit.DENIED,
                f"the monitor at {found.address} does not accept this token",
                "see `gpuferry doctor`",
            ) from None
        if code in (*SILENT, grpc.StatusCode.CANCELLED):  # as `attended` does
            raise unreachable(found, why_unreachable(code, error.details())) from None
        if code is grpc.StatusCode.PERMISSION_DENIED:
            hint = "use the operator's token (GPUFERRY_TOKEN_FILE)"
            raise CliError(Exit.DENIED, error.details() or "", hint) from None
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise CliError(Exit.NO_CAPACITY, error.details() or "") from None
        if code is grpc.StatusCode.NOT_FOUND:
            raise CliError(Exit.NOT_FOUND, error.details() or "", not_found) from None
        if code is grpc.StatusCode.UNIMPLEMENTED:
            what = (
                f"the monitor at {found.address} is older than this gpuferry, and does not know the command"
            )
            raise CliError(Exit.FAILED, what, "`gpuferry status` shows its version") from None
        if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
            raise CliError(Exit.FAILED, error.details() or "") from None
        raise CliError(Exit.FAILED, f"the monitor answered {code.name}: {error.details()}") from None


@contextmanager
def attended(call: Any, stub: control_pb2_grpc.MonitorStub, metadata: Metadata) -> Iterator[None]:
    """While a call lasts that may take as long as it likes: it is cancelled when the monitor answers no other
    call any more, as one that hangs, or whose machine is gone.
    """
    over = threading.Event()

    def attend() -> None:
        while not over.wait(PROBE_SECONDS):
            try:
                stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=ANSWER_SECONDS)
            except grpc.RpcError as error:
                if error.code() in SILENT:
                    call.cancel()
            except ValueError:  # the channel was closed meanwhile
                return

    attendant = threading.Thread(target=attend, daemon=True)
    attendant.start()
    try:
        yield
    finally:
        over.set()


def looks(
    stub: control_pb2_grpc.MonitorStub, metadata: Metadata, interval: float, timeout: float
) -> Iterator[control_pb2.StatusReply]:
    """The status each `interval` seconds, for ever. Each time it is asked for anew, with `timeout` seconds to
    answer: on a stream a monitor that hangs, or whose machine is gone, would show what once was.
    """
    while True:
        yield stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=timeout)
        time.sleep(interval)
