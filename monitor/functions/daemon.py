"""The function server's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import partial

import structlog
import uvloop
from gpuferry.guest.endpoint import TLS_SCHEME

from ..door.listener import listen_tcp
from ..service import expiry
from ..service.descriptors import raise_limit
from ..service.notify import Notifier
from ..service.runtime import RuntimeDirectory, from_here
from ..service.stopping import Stopping, heed_signals
from ..service.tls import identity_entries, identity_of
from ..service.waiting import cancel_all, until
from ..settings import inforce
from ..settings.errors import ConfigError
from ..settings.folders import store_path
from ..store.access import access_of
from ..store.choose import open_store
from ..store.interface import StoreError
from .bodies import Bodies
from .catalogue import Catalogue
from .config import FunctionsConfig, FunctionsOptions
from .engine import Engine
from .fleet import Fleet
from .front import Front
from .gpu_server import GpuServer, Way, way_of
from .memory import Where
from .metrics import Metrics
from .schedule import Schedule
from .server import FunctionServer
from .shared import Shared
from .shared import run as run_shared
from .shelf import InUse, Shelf
from .surroundings import environment_of
from .system import System

STAGED = "functions-shared"  # and a number: the folder of files that come out of a store
log = structlog.get_logger()


class Daemon:
    """One function server."""

    def __init__(self, config: FunctionsConfig) -> None:
        self._config = config
        self._stopping = Stopping()

    async def run(self) -> None:
        """Serve until a signal comes. Raises ConfigError if it cannot start."""
        config = self._config
        async with contextlib.AsyncExitStack() as stack:
            identity = identity_of(config)
            runtime = RuntimeDirectory(
                config.runtime, whose="a function server", shows="gpuferry functions list"
            )
            stack.callback(runtime.close)
            schedule = Schedule(config.policy, config.tokens, config.policy_options)
            gpu_server = GpuServer(partial(way_of, config))
            shared = self._shared(schedule, gpu_server.way)
            if shared:
                stack.push_async_callback(shared.close)
            shelf = self._shelf(shared is not None)
            stack.callback(shelf.close)
            fleet = Fleet(partial(environment_of, config), lambda: schedule.gpus, shelf.file)
            metrics = Metrics()
            engine = Engine(schedule, fleet, gpu_server, config.queue, (metrics, gpu_server))

            def moved(program: bytes, where: Where) -> None:
                engine.moved(program, where)
                metrics.placed(program, where)

            gpu_server.on_moved, gpu_server.on_lost = moved, engine.session_lost
            fleet.ended = gpu_server.over
            catalogue = Catalogue(shelf, schedule, fleet, engine, shared)
            metrics.show(catalogue.all, gpu_server.where)
            catalogue.forgotten = metrics.forget
            bodies = Bodies(config.bodies)
            await self._restore(catalogue)
            listening = listen_tcp(config.listen)
            telling = asyncio.ensure_future(gpu_server.run())
            stack.push_async_callback(cancel_all, [telling])
            await gpu_server.settled()
            engine.take_gpus()
            server = FunctionServer(
                Front(catalogue, engine, metrics, bodies).handle,
                System(config, catalogue, metrics, bodies, schedule, gpu_server, shared).routes(),
                listening,
                config.token,
                identity,
                config.connections,
                config.public,
            )
            stack.push_async_callback(server.stop)
            await server.start()

            heed_signals(self._stopping.ask)
            notifier = Notifier()
            tasks = [
                asyncio.ensure_future(catalogue.tick()),
                asyncio.ensure_future(notifier.watch()),
                asyncio.ensure_future(expiry.watch(identity)),
                telling,
            ]
            if shared:
                tasks.append(asyncio.ensure_future(run_shared(shared, catalogue)))
            stack.push_async_callback(cancel_all, tasks)
            with runtime.must_publish():
                self._publish(runtime, server.name, identity is not None)
            log.info("listening", address=server.name, functions=len(catalogue.all()), policy=config.policy)
            notifier.ready(f"functions are invoked at {server.name}")
            try:
                await until(self._stopping.asked, tasks)
                notifier.stopping(config.grace)
                log.info("draining", invocations=len(engine))
                server.ready = False
                engine.close()
                await self._drain(engine, bodies)
            finally:
                engine.abort()
                await fleet.close()
            log.info("stopping")

    def _shelf(self, staged: bool) -> Shelf:
        """The folder of functions; `staged`: of their files alone. Raises ConfigError."""
        folder = self._config.folder
        try:
            return Shelf.beside(folder.with_name(STAGED)) if staged else Shelf(folder)
        except InUse:
            hint = "--state FOLDER for one of its own, or --store sqlite for several with the same functions"
            raise ConfigError(f"another function server has its functions in {folder}", hint) from None
        except OSError as error:
            raise ConfigError(f"cannot keep functions in {folder}: {error.strerror}") from None

    async def _restore(self, catalogue: Catalogue) -> None:
        """Have what is deployed. Raises ConfigError."""
        try:
            await catalogue.restore()
        except StoreError as error:
            raise ConfigError(f"the store does not answer: {error}") from None
        except OSError as error:
            raise ConfigError(f"cannot keep functions in {self._config.folder}: {error.strerror}") from None

    def _shared(self, schedule: Schedule, way: Way | None) -> Shared | None:
        """What this server has in common with others. Raises ConfigError."""
        config = self._config
        if config.store == "none":
            return None
        try:
            store = open_store(config.store, store_path(config.state), access_of(config), config.insecure)
        except StoreError as error:
            raise ConfigError(f"--store {config.store}: {error}") from None
        return Shared(store, config.node or _host_of(way), schedule)

    async def _drain(self, engine: Engine, bodies: Bodies) -> None:
        """Wait until all invocations have ended and their answers were read, the grace is over, or a second
        signal came.
        """

        async def answered() -> None:
            await engine.drained()
            await bodies.all_read()

        waits = [
            asyncio.ensure_future(answered()),
            asyncio.ensure_future(self._stopping.asked_twice.wait()),
        ]
        await asyncio.wait(waits, timeout=self._config.grace, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _publish(self, runtime: RuntimeDirectory, name: str, secure: bool) -> None:
        """Write address, token file and pid where commands of the same user find them."""
        token = runtime.publish("token", self._config.token.decode() + "\n")
        runtime.publish(inforce.NAME, inforce.written(FunctionsOptions, self._config))
        name = from_here(name)
        entries = {
            "GPUFERRY_FUNCTIONS": TLS_SCHEME + name if secure else name,
            "GPUFERRY_FUNCTIONS_TOKEN_FILE": token,
            "GPUFERRY_FUNCTIONS_PID": os.getpid(),
            **identity_entries(self._config),
        }
        runtime.publish_endpoint(entries)


def _host_of(way: Way | None) -> str:
    """The host of the GPU server: this one, if it is reached on this machine alone."""
    host = way.address.rpartition("://")[2].rpartition(":")[0].strip("[]") if way else ""
    here = not host or host in ("unix", "localhost", "127.0.0.1", "::1")
    return socket.gethostname() if here else host


def run(config: FunctionsConfig) -> None:
    """The whole life of a function server's process."""
    raise_limit()
    uvloop.run(Daemon(config).run())
