"""The function server's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from functools import partial

import structlog
import uvloop
from gpuferry.guest.endpoint import TLS_SCHEME

from ..door.listener import listen_tcp
from ..service.descriptors import raise_limit
from ..service.notify import Notifier
from ..service.runtime import RuntimeDirectory
from ..service.stopping import Stopping
from ..service.tls import identity_entries, identity_of
from ..service.waiting import cancel_all, until
from .bodies import Bodies
from .catalogue import Catalogue
from .config import FunctionsConfig
from .engine import Engine
from .fleet import Fleet
from .front import Front
from .gpu_server import GpuServer, way_of
from .metrics import Metrics
from .schedule import Schedule
from .server import FunctionServer
from .shelf import Shelf
from .surroundings import environment_of
from .system import System

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
            runtime = RuntimeDirectory(config.runtime)
            stack.callback(runtime.close)
            shelf = Shelf(config.folder)
            schedule = Schedule(config.policy, config.tokens, config.overrun)
            fleet = Fleet(partial(environment_of, config), lambda: schedule.gpus, shelf.file)
            metrics = Metrics()
            gpu_server = GpuServer(way_of(config))
            engine = Engine(schedule, fleet, gpu_server, config.queue, (metrics, gpu_server))
            gpu_server.on_moved, gpu_server.on_lost = engine.moved, engine.session_lost
            fleet.ended = gpu_server.over
            catalogue = Catalogue(shelf, schedule, fleet, engine)
            metrics.show(catalogue.all)
            bodies = Bodies(config.bodies)
            catalogue.restore()
            listening = listen_tcp(config.listen)
            telling = asyncio.ensure_future(gpu_server.run())
            stack.push_async_callback(cancel_all, [telling])
            await gpu_server.settled()
            engine.take_gpus()
            server = FunctionServer(
                Front(catalogue, engine, metrics, bodies).handle,
                System(config, catalogue, metrics, bodies, schedule, gpu_server).routes(),
                listening,
                config.token,
                identity,
                config.connections,
                config.public,
            )
            stack.push_async_callback(server.stop)
            await server.start()

            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.add_signal_handler(number, self._stopping.ask)
            notifier = Notifier()
            tasks = [
                asyncio.ensure_future(catalogue.tick()),
                asyncio.ensure_future(notifier.watch()),
                telling,
            ]
            stack.push_async_callback(cancel_all, tasks)
            self._publish(runtime, server.name, identity is not None)
            log.info("listening", address=server.name, functions=len(catalogue.all()), policy=config.policy)
            notifier.ready(f"functions are invoked at {server.name}")
            try:
                await until(self._stopping.asked, tasks)
                notifier.stopping(config.grace)
                log.info("draining", invocations=len(engine))
                server.ready = False
                engine.close()
                await self._drain(engine)
            finally:
                engine.abort()
                await fleet.close(catalogue.every())
            log.info("stopping")

    async def _drain(self, engine: Engine) -> None:
        """Until all has ended, the grace is over, or somebody asks a second time."""
        waits = [
            asyncio.ensure_future(engine.drained()),
            asyncio.ensure_future(self._stopping.asked_twice.wait()),
        ]
        await asyncio.wait(waits, timeout=self._config.grace, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _publish(self, runtime: RuntimeDirectory, name: str, secure: bool) -> None:
        """For commands of the same user on this machine."""
        token = runtime.publish("token", self._config.token.decode() + "\n")
        name = _from_here(name)
        entries = {
            "GPUFERRY_FUNCTIONS": TLS_SCHEME + name if secure else name,
            "GPUFERRY_FUNCTIONS_TOKEN_FILE": token,
            "GPUFERRY_FUNCTIONS_PID": os.getpid(),
            **identity_entries(self._config),
        }
        runtime.publish_endpoint(entries)


def _from_here(name: str) -> str:
    """The address under which this machine reaches what listens everywhere: no certificate is for that."""
    host, _, port = name.rpartition(":")
    loopback = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
    return f"{loopback.get(host, host)}:{port}"


def run(config: FunctionsConfig) -> None:
    """The whole life of a function server's process."""
    raise_limit()
    uvloop.run(Daemon(config).run())
