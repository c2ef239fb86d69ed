"""The monitor's process: occupies its premises, runs a monitor until told to stop, leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal

import structlog
import uvloop

from .assembly import Monitor, Premises, build, occupy
from .pool.adoption import RETURN_SECONDS
from .service import expiry
from .service.descriptors import raise_limit
from .service.notify import Notifier
from .service.processes import let_children_be_ordinary
from .service.runtime import from_here
from .service.stopping import Stopping, heed_signals
from .service.tls import identity_entries
from .service.waiting import cancel_all, until
from .settings import inforce
from .settings.monitor import Config
from .settings.monitor_options import MonitorOptions
from .store.interface import StoreError

YOUNG_OBJECTS = 5000  # more than a hundred guests bring along: garbage can wait until they have their leases

log = structlog.get_logger()


class Daemon:
    """The life of one monitor."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stopping = Stopping()
        self._notifier = Notifier()

    async def run(self) -> None:
        """Run until a signal comes or the parent ends. Raises ConfigError if the monitor cannot start."""
        async with contextlib.AsyncExitStack() as stack:
            premises = occupy(self._config, stack)
            monitor = build(self._config, premises, self._stopping)
            for listener in monitor.listeners:
                stack.callback(listener.close)
            stack.push_async_callback(monitor.control.stop)
            control_name = await monitor.control.start(self._config.control, premises.runtime.path)
            self._heed_signals()
            if monitor.mps:
                stack.push_async_callback(monitor.mps.stop)  # when its clients are gone
            stack.push_async_callback(monitor.pool.stop)
            if not premises.ledger.inherited:
                asyncio.get_running_loop().call_soon(monitor.pool.start)
            await self._serve_http(monitor, premises, stack)
            with contextlib.suppress(StoreError):  # it is looked at again all the time
                await monitor.membership.read_limits()
            stack.callback(monitor.billing.close)
            tasks = self._start(monitor, premises)
            stack.push_async_callback(cancel_all, tasks)
            with premises.runtime.must_publish():
                self._publish(monitor, premises, control_name)
            premises.ledger.take_over()
            gc.collect()
            gc.freeze()  # what is there now stays; to look through it would hold up everybody for 30 ms
            gc.set_threshold(YOUNG_OBJECTS)
            if premises.ledger.inherited:  # what the one before left is worth waiting for
                asyncio.get_running_loop().call_later(RETURN_SECONDS, monitor.pool.start)
            try:
                await until(self._stopping.asked, tasks)
            except Exception:
                # Half a monitor is worse than none: whoever starts the next one loses no session.
                log.exception("a part of the monitor failed, leaving the API servers to the next monitor")
                os._exit(1)
            self._notifier.stopping(self._config.grace)
            log.info("stopping")
            await self._drain(monitor)

    def _heed_signals(self) -> None:
        heed_signals(self._stopping.ask)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _make_way)

    async def _serve_http(
        self, monitor: Monitor, premises: Premises, stack: contextlib.AsyncExitStack
    ) -> None:
        if premises.http:
            from .views.web.server import WebServer  # takes its time: only where it is wanted

            server = WebServer(
                monitor.observatory,
                premises.http,
                monitor.page_key,
                premises.identity,
                monitor.callers,
                monitor.room.http,
            )
            stack.push_async_callback(server.stop)
            await server.start()

    def _start(self, monitor: Monitor, premises: Premises) -> list[asyncio.Task[None]]:
        """What runs beside each other until the monitor stops. None of it may end with an error unseen."""
        jobs = [listener.serve() for listener in monitor.listeners]
        jobs += [
            monitor.membership.run(monitor.listeners[-1].name),
            monitor.readiness.report(monitor.control.set_serving),
            monitor.gpus.run(),
            monitor.losses.run(),
            monitor.observatory.run(),
            monitor.billing.run(),
            monitor.steward.run(),
            monitor.steward.watch_files(),
            monitor.greed.run(),
            monitor.strays.run(),
            self._notifier.watch(),
            expiry.watch(premises.identity),
        ]
        jobs += [
            part.run()
            for part in (monitor.rounds, monitor.door, monitor.balance, monitor.office, monitor.mps)
            if part
        ]
        return [asyncio.ensure_future(job) for job in jobs]

    def _publish(self, monitor: Monitor, premises: Premises, control_name: str) -> None:
        """Tell programs of the same user, the log and systemd where this monitor is."""
        names = [listener.name for listener in monitor.listeners]
        token = premises.runtime.publish("token", self._config.token.decode() + "\n")
        entries = {
            "GPUFERRY_MONITOR": from_here(names[0]),
            "GPUFERRY_TCP": next((name for name in names if not name.startswith("unix:")), ""),
            "GPUFERRY_CONTROL": control_name,
            "GPUFERRY_CONTROL_HERE": monitor.control.here,
            "GPUFERRY_HTTP": monitor.http_name,
            "GPUFERRY_TOKEN_FILE": token,
            "GPUFERRY_MONITOR_PID": os.getpid(),
            **identity_entries(self._config),
        }
        if monitor.http_name:
            entries["GPUFERRY_PAGE_KEY_FILE"] = premises.runtime.publish("page-key", monitor.page_key + "\n")
        pool = monitor.pool
        said = inforce.written(MonitorOptions, self._config, pool.jailed, pool.counted)
        premises.runtime.publish(inforce.NAME, said)
        premises.runtime.publish_endpoint(entries)
        monitor.readiness.published()
        log.info(
            "listening",
            guests=names,
            control=control_name,
            http=monitor.http_name,
            devices=self._config.devices,
            simulated=self._config.simulated,
            pool=self._config.pool,
        )
        self._notifier.ready(f"guests connect to {', '.join(names)}")

    async def _drain(self, monitor: Monitor) -> None:
        draining = asyncio.ensure_future(monitor.broker.drain(self._config.grace))
        impatient = asyncio.ensure_future(self._stopping.asked_twice.wait())
        await asyncio.wait({draining, impatient}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, impatient):
            task.cancel()


def _make_way() -> None:
    """Make way for another monitor, which finds everything as if this one had been killed."""
    log.info("leaving the API servers to the next monitor")
    os._exit(0)


def run(config: Config) -> None:
    """The whole life of a monitor process."""
    raise_limit()
    let_children_be_ordinary()

    async def main() -> None:
        await Daemon(config).run()

    uvloop.run(main())
