"""One watch at one member of etcd, and how it is noticed that it broke: a member may just fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import grpc
from gpuferry.specs._generated import etcd_pb2, etcd_pb2_grpc

from ..service.waiting import within

SILENCE_SECONDS = 2.0  # then the member is asked whether it is still there
ANSWER_SECONDS = 2.0
_STILL_THERE = etcd_pb2.WatchRequest(progress_request=etcd_pb2.WatchProgressRequest())


class WatchBroke(Exception):
    """Raised where changes may have happened that the watch did not show."""


async def events(
    stub: etcd_pb2_grpc.WatchStub, wanted: etcd_pb2.WatchCreateRequest, metadata: tuple[tuple[str, str], ...]
) -> AsyncGenerator[Sequence[etcd_pb2.Event], None]:
    """The changes, in order and complete, until it raises WatchBroke."""
    stream = stub.Watch(metadata=metadata)
    reading: asyncio.Task[object] | None = None
    try:
        await within(ANSWER_SECONDS, stream.write(etcd_pb2.WatchRequest(create_request=wanted)))
        asked = True
        while True:
            if reading is None:  # it stays while nothing comes: to cancel it would end the stream
                reading = asyncio.ensure_future(stream.read())
                reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({reading}, timeout=ANSWER_SECONDS if asked else SILENCE_SECONDS)
            if not reading.done():
                if asked:
                    raise WatchBroke("the member does not answer")
                await within(ANSWER_SECONDS, stream.write(_STILL_THERE))
                asked = True
                continue
            if reading.cancelled():
                raise WatchBroke("the stream was cancelled")
            response, reading, asked = reading.result(), None, False
            if not isinstance(response, etcd_pb2.WatchResponse):
                raise WatchBroke("the stream ended")
            if response.canceled:  # no leader, or the history to go on from was compacted
                raise WatchBroke(response.cancel_reason or f"compacted at {response.compact_revision}")
            if response.events:
                yield response.events
    except grpc.aio.AioRpcError as error:
        raise WatchBroke(f"{error.code().name}: {error.details()}") from None
    except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:  # writing to a stream that just broke
        raise WatchBroke(str(error)) from None
    except asyncio.TimeoutError:
        raise WatchBroke("the member takes nothing") from None
    finally:
        stream.cancel()
        if reading:
            reading.cancel()
