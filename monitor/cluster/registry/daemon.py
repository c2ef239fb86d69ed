"""The registry's process: one replica, which can be killed at any moment without anything being lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import grpc
import structlog
from gpuferry.guest.endpoint import REGISTRY
from gpuferry.specs._generated import registry_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ...door.credentials import AnyOf, OwnToken, Tenants
from ...door.listener import Listener, listen_tcp, name_of, stop_listening
from ...door.tokens.book import TokenBook
from ...service import expiry
from ...service.descriptors import raise_limit, shares
from ...service.notify import Notifier
from ...service.ports import add_front, bounded
from ...service.runtime import RuntimeDirectory, from_here
from ...service.stopping import heed_signals
from ...service.tls import identity_entries, identity_of
from ...service.waiting import cancel_all, until
from ...settings import inforce
from ...settings.errors import ConfigError
from ...settings.monitor import check_clear, is_loopback
from ...store.interface import StoreError
from ...tenants.book import LimitBook
from ...tenants.tenancy import Tenancy
from .accounts import ClusterUsage, follow_limits
from .client import SERVICE
from .config import RegistryConfig, RegistryOptions
from .directory import Directory
from .guard import RequireSignature
from .redirect import Redirector
from .service import RegistryService
from .signing import Guard
from .storage import store_of

log = structlog.get_logger()


class Registry:
    """One replica of the registry."""

    def __init__(self, config: RegistryConfig, token_given: bool) -> None:
        self._config = config
        self._token_given = token_given
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal comes. Raises ConfigError if it cannot start."""
        config = self._config
        async with contextlib.AsyncExitStack() as stack:
            identity = identity_of(config)
            runtime = RuntimeDirectory(config.runtime, whose="a registry", shows="gpuferry server list")
            stack.callback(runtime.close)
            store = store_of(config)
            stack.push_async_callback(store.close)
            directory, book = Directory(store, config.lease), TokenBook(store)
            await self._check_exposure(book)

            tenancy = Tenancy({})
            redirector = Redirector(
                directory, config.cluster_key, config.policy, config.max_wait, tenancy, identity
            )
            stack.push_async_callback(redirector.close)
            authority = AnyOf([OwnToken(config.token, vouched=True), Tenants(book)])
            room = shares()
            listener = Listener(
                listen_tcp(config.listen),
                authority,
                config.handshake_timeout,
                redirector,
                identity,
                room.shaking,
            )
            stack.callback(listener.close)

            door = listen_tcp(config.control, "--control")
            stack.callback(stop_listening, door)
            control = name_of(door, secure=identity is not None)
            guard = RequireSignature(
                Guard(config.cluster_key), SERVICE, lambda peer: front.prove(peer, tenant=None)
            )
            server = grpc.aio.server(interceptors=[guard], options=bounded(room.control))
            front = add_front(server, door, runtime.path, identity, room.control)
            stack.callback(front.close)
            await self._start_control(server, directory, book)
            stack.push_async_callback(server.stop, 0.5)
            front.open()

            heed_signals(self._stopping.set)
            notifier = Notifier()
            jobs = (
                listener.serve(),
                directory.follow(),
                follow_limits(store, tenancy),
                notifier.watch(),
                expiry.watch(identity),
            )
            tasks: list[asyncio.Task[None]] = [asyncio.ensure_future(job) for job in jobs]
            stack.push_async_callback(cancel_all, tasks)
            with runtime.must_publish():
                self._publish(runtime, listener.name, control)
            log.info("listening", guests=listener.name, control=control, store=config.store.partition(":")[0])
            notifier.ready(f"guests connect to {listener.name}")
            await until(self._stopping, tasks)
            notifier.stopping(0)
            log.info("stopping")

    async def _check_exposure(self, book: TokenBook) -> None:
        """Nothing is reachable from other machines in the clear, or unless somebody made a token."""
        for flag, address in (("--listen", self._config.listen), ("--control", self._config.control)):
            check_clear(flag, address, bool(self._config.tls_cert), self._config.insecure)
        if is_loopback(self._config.listen) or self._token_given:
            return
        try:
            tokens = await book.all()
        except StoreError as error:
            raise ConfigError(f"the store does not answer: {error}") from None
        if not tokens:
            raise ConfigError(
                f"{self._config.listen} can be reached from other machines, and there is no token: "
                "`gpuferry token create TENANT` first, or set GPUFERRY_TOKEN, or listen on 127.0.0.1"
            )

    async def _start_control(self, server: grpc.aio.Server, directory: Directory, book: TokenBook) -> None:
        limits, usage = LimitBook(directory.store), ClusterUsage(directory.store)
        service = RegistryService(directory, book, self._config.lease, limits, usage)
        registry_pb2_grpc.add_RegistryServicer_to_server(service, server)
        checks = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        await server.start()
        await checks.set("", health_pb2.HealthCheckResponse.ServingStatus.SERVING)

    def _publish(self, runtime: RuntimeDirectory, guests: str, control: str) -> None:
        """For commands of the same user on this machine."""
        token = runtime.publish("token", self._config.token.decode() + "\n")
        entries = {
            "GPUFERRY_REGISTRY": from_here(control),
            "GPUFERRY_CLUSTER_KEY_FILE": self._config.cluster_key_path,
            "GPUFERRY_MONITOR": from_here(guests),
            "GPUFERRY_TOKEN_FILE": token,
            "GPUFERRY_REGISTRY_PID": os.getpid(),
            **identity_entries(self._config),
        }
        runtime.publish(inforce.NAME, inforce.written(RegistryOptions, self._config))
        runtime.publish_endpoint(entries)


def runtime_of(base: str) -> Path:
    """The registry's runtime folder: inside the monitor's, so that both can run for one user."""
    return Path(base, REGISTRY)


def run(config: RegistryConfig, token_given: bool) -> None:
    """The whole life of a registry process."""
    raise_limit()
    try:
        asyncio.run(Registry(config, token_given).run())
    except StoreError as error:
        raise ConfigError(str(error)) from None
