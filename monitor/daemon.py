"""The monitor's process: puts the parts together, runs until told to stop, leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator

import structlog
import uvloop
from gpuferry.specs._generated import node_pb2

from .broker.balance import Balance
from .broker.broker import Broker
from .cluster.membership import Membership
from .door.listener import Listener, listen_tcp, listen_unix
from .pool.adoption import DOOR, LATEST_RETURN_SECONDS, RETURN_SECONDS, Door, Ledger
from .pool.device import server_environment
from .pool.pool import Pool
from .service.notify import Notifier
from .service.parent import Parent
from .service.runtime import RuntimeDirectory
from .service.waiting import until
from .settings.monitor import Config
from .views.control import ControlServer, MonitorService
from .views.stats.observatory import Observatory
from .views.status import StatusReporter

FAILURES_FATAL_FOR_PARENT = 3
YOUNG_OBJECTS = 5000  # more than a hundred guests bring along: garbage can wait until they have their leases
WATCH_SECONDS = 0.5

log = structlog.get_logger()


class Daemon:
    """One monitor."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stopping = asyncio.Event()
        self._impatient = asyncio.Event()
        self._health: asyncio.Queue[bool] = asyncio.Queue()
        self._was_ready = False
        self._parent: Parent | None = None
        self._notifier = Notifier()
        self._ledger: Ledger | None = None
        self._broker = Broker(config, self._pool_changed, self._next_session)
        self._observatory = Observatory(config, self._broker)
        self._pool = Pool(config, server_environment(config.simulated), self._observatory.accounting)
        self._membership = Membership(config, self._broker, self._pool)

    def stop(self) -> None:
        """Once: gracefully. Twice: now."""
        (self._impatient if self._stopping.is_set() else self._stopping).set()

    async def run(self) -> None:
        """Until a signal, or the end of the parent. ConfigError if it cannot start."""
        async with contextlib.AsyncExitStack() as stack:
            runtime = RuntimeDirectory(
                self._config.runtime, private=self._config.status_descriptor is not None
            )
            stack.callback(runtime.close)
            ledger = self._ledger = Ledger(runtime)
            ledger.reserve()
            if ledger.inherited:
                self._broker.complete_at = time.monotonic() + LATEST_RETURN_SECONDS
            listeners = []
            for listening in self._listening():
                limit = self._config.handshake_timeout
                listeners.append(Listener(listening, self._membership.authority, limit, self._broker))
                stack.callback(listeners[-1].close)
            names = [listener.name for listener in listeners]
            reporter = StatusReporter(self._config, self._pool, self._broker, names, self._observatory.gpus)
            service = MonitorService(reporter.report, self._pause, self._broker)
            control = ControlServer(service, self._config.token)
            stack.push_async_callback(control.stop)
            control_name = await control.start(self._config.control)

            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.add_signal_handler(number, self.stop)
            loop.add_signal_handler(signal.SIGUSR2, self._leave)
            if self._config.status_descriptor is not None:
                self._parent = Parent(self._config.status_descriptor, self.stop)

            tasks = []
            if self._config.orphan_grace:
                door = Door(runtime.path / DOOR, ledger.secret, self._pool.adopt)
                stack.callback(door.close)
                tasks.append(asyncio.ensure_future(door.serve()))
                self._pool.home = node_pb2.Home(
                    path=str(door.path), secret=ledger.secret, grace_seconds=self._config.orphan_grace
                )
            self._pool.spare, self._pool.withhold = self._spare, self._broker.withhold
            self._broker.migrations.pool = self._pool
            stack.push_async_callback(self._pool.stop)
            if not ledger.inherited:
                loop.call_soon(self._pool.start)
            self._observatory.start(self._pool, reporter)
            stack.push_async_callback(self._observatory.stop)
            reporter.http = await self._serve_http(stack)
            tasks += [asyncio.ensure_future(listener.serve()) for listener in listeners]
            tasks.append(asyncio.ensure_future(self._report_health(control)))
            tasks.append(asyncio.ensure_future(self._notifier.watch()))
            tasks.append(asyncio.ensure_future(self._watch_devices()))
            if self._config.migration != "off":
                balance = Balance(self._broker, self._pool, self._observatory.gpus)
                tasks.append(asyncio.ensure_future(balance.run()))
            tasks.append(asyncio.ensure_future(self._membership.run(names[-1])))
            stack.callback(lambda: [task.cancel() for task in tasks])
            self._publish(runtime, names, control_name, reporter.http)
            log.info(
                "listening",
                guests=names,
                control=control_name,
                http=reporter.http,
                devices=self._config.devices,
                simulated=self._config.simulated,
                pool=self._config.pool,
            )
            gc.collect()
            gc.freeze()  # what is there now stays; to look through it would hold up everybody for 30 ms
            gc.set_threshold(YOUNG_OBJECTS)
            if ledger.inherited:  # what an earlier monitor left can come in now, and is worth waiting for
                loop.call_later(RETURN_SECONDS, self._pool.start)
            self._notifier.ready(f"guests connect to {', '.join(names)}")
            try:
                await until(self._stopping, tasks)
            except Exception:
                # Half a monitor is worse than none: whoever starts the next one loses no session.
                log.exception("a part of the monitor failed, leaving the API servers to the next monitor")
                os._exit(1)
            self._notifier.stopping(self._config.grace)
            log.info("stopping")
            await self._drain()

    def _next_session(self) -> int:
        assert self._ledger
        return self._ledger.next_session()

    def _spare(self, device: int) -> int:
        """Memory that nobody uses, by NVML's word if it has one, and nobody was promised."""
        unpromised = [room.gpu.free for room in self._broker.rooms() if room.ordinal == device]
        known = [s.ready for s in self._pool.servers.values() if s.ready and s.device == device]
        gpu = self._observatory.gpus.get(known[0].device_uuid) if known else None
        if gpu and gpu.memory_used is not None and gpu.memory_total is not None:
            unpromised.append(gpu.memory_total - gpu.memory_used)
        return max(min(unpromised, default=0), 0)

    def _leave(self) -> None:
        """Make way for another monitor, which finds everything as if this one had been killed."""
        log.info("leaving the API servers to the next monitor")
        os._exit(0)

    def _listening(self) -> Iterator[socket.socket]:
        if self._config.socket:
            yield listen_unix(self._config.socket)
        if self._config.listen:
            yield listen_tcp(self._config.listen)

    async def _serve_http(self, stack: contextlib.AsyncExitStack) -> str:
        if not self._config.http:
            return ""
        from .views.web.server import WebServer, listen  # takes its time; the API servers start meanwhile

        server = WebServer(self._observatory, listen(self._config.http), self._config.token)
        stack.push_async_callback(server.stop)
        await server.start()
        return server.name

    def _publish(self, runtime: RuntimeDirectory, names: list[str], control_name: str, http: str) -> None:
        token = runtime.publish("token", self._config.token.decode() + "\n")
        entries = {
            "GPUFERRY_MONITOR": names[0],
            "GPUFERRY_TCP": next((name for name in names if not name.startswith("unix:")), ""),
            "GPUFERRY_CONTROL": control_name,
            "GPUFERRY_HTTP": http,
            "GPUFERRY_TOKEN_FILE": token,
            "GPUFERRY_MONITOR_PID": os.getpid(),
        }
        runtime.publish("endpoint", "".join(f"{key}={value}\n" for key, value in entries.items()))

    def _pool_changed(self) -> None:
        ready = any(server.ready for server in self._pool.servers.values())
        self._health.put_nowait(ready)
        if ready and not self._was_ready:
            self._was_ready = True
            if self._parent:
                self._parent.tell("ready")
        elif self._parent and not self._was_ready and self._pool.failures >= FAILURES_FATAL_FOR_PARENT:
            self._parent.tell(f"failed {self._pool.last_failure}")
            self.stop()

    async def _report_health(self, control: ControlServer) -> None:
        await control.set_serving(False)
        while True:
            await control.set_serving(await self._health.get())

    async def _watch_devices(self) -> None:
        """NVML may know before any API server that a device is gone."""
        lost: set[int] = set()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for device, uuid in self._pool.uuids().items():
                gpu = self._observatory.gpus.get(uuid)
                if gpu and gpu.lost and device not in lost:
                    lost.add(device)
                    self._pool.lose(device, "the device is lost, says NVML")
                elif gpu and not gpu.lost:
                    lost.discard(device)

    async def _pause(self, seconds: float) -> bool:
        """False when the monitor stops meanwhile."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return not self._stopping.is_set()

    async def _drain(self) -> None:
        draining = asyncio.ensure_future(self._broker.drain(self._config.grace))
        impatient = asyncio.ensure_future(self._impatient.wait())
        await asyncio.wait({draining, impatient}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, impatient):
            task.cancel()


def run(config: Config) -> None:
    """The whole life of a monitor process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def main() -> None:
        await Daemon(config).run()

    uvloop.run(main())
