"""The store in an etcd v3 cluster, for several replicas of the registry: any member will do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import grpc
import structlog
from gpuferry.specs._generated import etcd_pb2, etcd_pb2_grpc

from ..service.rates import Sparing
from .etcd_access import LOGIN_SECONDS, Access, Login, Metadata
from .etcd_watch import WatchBroke, events
from .interface import Entry, StoreError

CALL_SECONDS = 2.0  # one member's answer
PATIENCE_SECONDS = 10.0  # an election takes one or two seconds
PAUSE_SECONDS = 0.1
HISTORY_SECONDS = (
    300.0  # that etcd keeps at least: a watch that broke goes on from what is there, and needs none
)
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.max_receive_message_length", -1),  # all that a cluster of servers says comes in one answer
)
_PERMANENT = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)

log = structlog.get_logger()
Answer = TypeVar("Answer")


class Member:
    """One etcd process, and what it is asked."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        if credentials:
            self.channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.kv = etcd_pb2_grpc.KVStub(self.channel)
        self.lease = etcd_pb2_grpc.LeaseStub(self.channel)
        self.watch = etcd_pb2_grpc.WatchStub(self.channel)


class EtcdStore:
    """Asks the member that answered last, and the others when it does not."""

    def __init__(self, addresses: Sequence[str], access: Access = Access()) -> None:  # noqa: B008
        self._addresses = addresses
        self._access = access
        try:
            self._members = self._dial()
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}") from None
        self._closing: set[asyncio.Task[None]] = set()
        self._root = access.root
        self._login = Login(access)
        self._notes = Sparing(log.warning)
        self._next = 0
        self._mark = (time.monotonic(), 0)  # when etcd was at which revision

    def _dial(self) -> list[Member]:
        """The members, with the certificates of now: a channel keeps those that it was made with. Raises
        OSError.
        """
        stamp = self._access.stamp()  # first: what changes while it is read is looked at again
        credentials = self._access.credentials()
        self._stamp = stamp
        return [Member(address, credentials) for address in self._addresses]

    def _look(self) -> None:
        """Something failed: where the certificates have changed, go on with the new ones."""
        if self._access.stamp() == self._stamp:
            return
        try:
            before, self._members = self._members, self._dial()
        except OSError as error:
            self._notes.say("certificates for etcd cannot be read", "files", error=str(error))
            return
        log.info("read the certificates for etcd anew")
        for member in before:
            closing = asyncio.ensure_future(member.channel.close(LOGIN_SECONDS))  # longer than any call takes
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _key(self, key: str) -> bytes:
        return (self._root + key).encode()

    def _bounds(self, prefix: str) -> tuple[bytes, bytes]:
        first = self._key(prefix)
        return first, first[:-1] + bytes([first[-1] + 1])

    def _name(self, key: bytes) -> str:
        return key.decode(errors="replace").removeprefix(self._root)  # others may have written there

    async def _ask(self, question: Callable[[Member, Metadata], Awaitable[Answer]]) -> Answer:
        """Every question may be asked twice: a write that was lost on its way back is written again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for attempt in itertools.count(1):
            member = self._members[self._next]
            try:
                return await question(member, await self._login.metadata(member.channel))
            except grpc.aio.UsageError:  # its channel is closed, for there are new certificates
                continue
            except grpc.aio.AioRpcError as error:
                self._look()
                if self._login.forget(error.details() or "") and time.monotonic() <= deadline:
                    continue
                self._next = (self._next + 1) % len(self._members)
                reason = f"etcd at {member.address}: {error.code().name}: {error.details()}"
                if error.code() in _PERMANENT or time.monotonic() > deadline:
                    raise StoreError(reason) from None
                log.debug("etcd does not answer", member=member.address, code=error.code().name)
                if attempt % len(self._members) == 0:
                    await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError

    async def _range(self, key: bytes, end: bytes = b"") -> etcd_pb2.RangeResponse:
        request = etcd_pb2.RangeRequest(key=key, range_end=end)
        return await self._ask(
            lambda member, metadata: member.kv.Range(request, timeout=CALL_SECONDS, metadata=metadata)
        )

    async def get(self, key: str) -> Entry | None:
        """The newest value of the key, which most members agree on; None: there is no such key."""
        found = (await self._range(self._key(key))).kvs
        return Entry(found[0].value, found[0].mod_revision) if found else None

    async def read(self, prefix: str) -> dict[str, Entry]:
        """All keys with this prefix in order, with their entries."""
        found = (await self._range(*self._bounds(prefix))).kvs
        return {self._name(item.key): Entry(item.value, item.mod_revision) for item in found}

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write a value. Each write with `ttl` has a lease of its own: no replica has to remember
        another's.
        """

        async def write(member: Member, metadata: Metadata) -> None:
            lease = 0
            if ttl is not None:
                wanted = etcd_pb2.LeaseGrantRequest(TTL=math.ceil(ttl))
                granted = await member.lease.LeaseGrant(wanted, timeout=CALL_SECONDS, metadata=metadata)
                lease = granted.ID
            request = etcd_pb2.PutRequest(key=self._key(key), value=value, lease=lease)
            answer = await member.kv.Put(request, timeout=CALL_SECONDS, metadata=metadata)
            await self._forget(member, metadata, answer.header.revision)

        await self._ask(write)

    async def _forget(self, member: Member, metadata: Metadata, revision: int) -> None:
        """Let etcd forget what was overwritten a while ago: by itself it keeps every heartbeat that there was
        ever, until its file is as large as it may be and it takes no writes any more.
        """
        since, before = self._mark
        if time.monotonic() < since + HISTORY_SECONDS:
            return
        self._mark = (time.monotonic(), revision)
        if before:
            request = etcd_pb2.CompactionRequest(revision=before)
            with contextlib.suppress(
                grpc.aio.AioRpcError
            ):  # another replica has done it, or this user may not
                await member.kv.Compact(request, timeout=CALL_SECONDS, metadata=metadata)

    async def swap(self, key: str, value: bytes | None, version: int) -> bool:
        """Write a value, or with None delete the key, if the key still has this version; else return
        False.
        """
        full = self._key(key)
        unchanged = etcd_pb2.Compare(target=etcd_pb2.Compare.MOD, key=full, mod_revision=version)
        if value is None:
            change = etcd_pb2.RequestOp(request_delete_range=etcd_pb2.DeleteRangeRequest(key=full))
        else:
            change = etcd_pb2.RequestOp(request_put=etcd_pb2.PutRequest(key=full, value=value))
        request = etcd_pb2.TxnRequest(compare=[unchanged], success=[change])
        answer = await self._ask(
            lambda member, metadata: member.kv.Txn(request, timeout=CALL_SECONDS, metadata=metadata)
        )
        if answer.succeeded:
            return True
        # It may have been this very write that changed the version, if its answer was lost.
        entry = await self.get(key)
        return (entry.value if entry else None) == value

    async def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        """All keys with this prefix and their values now, and again after every change."""
        seen: Mapping[str, bytes] | None = None
        while True:
            try:
                async with contextlib.aclosing(self._follow(prefix)) as states:
                    async for state in states:
                        if state != seen:
                            seen = state
                            yield dict(state)
            except (WatchBroke, StoreError) as error:
                self._login.forget(str(error))
                self._look()
                self._notes.say("watch of etcd broke, beginning anew", prefix, reason=str(error))
                self._next = (self._next + 1) % len(self._members)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _follow(self, prefix: str) -> AsyncGenerator[Mapping[str, bytes], None]:
        """Until the watch breaks: then whatever is there is the truth again."""
        first, end = self._bounds(prefix)
        now = await self._range(first, end)
        state = {self._name(item.key): item.value for item in now.kvs}
        yield dict(state)
        wanted = etcd_pb2.WatchCreateRequest(key=first, range_end=end, start_revision=now.header.revision + 1)
        try:
            metadata = await self._login.metadata(self._members[self._next].channel)
        except grpc.aio.AioRpcError as error:
            raise WatchBroke(f"{error.code().name}: {error.details()}") from None
        watch = self._members[self._next].watch
        async with contextlib.aclosing(events(watch, wanted, metadata)) as changes:
            async for change in changes:
                for event in change:
                    if event.type == etcd_pb2.Event.PUT:
                        state[self._name(event.kv.key)] = event.kv.value
                    else:
                        state.pop(self._name(event.kv.key), None)
                yield dict(state)

    async def close(self) -> None:
        """Close the connections to all members."""
        await asyncio.gather(*(member.channel.close(None) for member in self._members), *self._closing)
