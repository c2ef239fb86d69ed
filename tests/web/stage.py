"""A web server of the monitor over a status that the test makes up, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.service.tls import Identity
from gpuferry.monitor.sessions.events import Announcer
from gpuferry.monitor.views.stats.accounting import Accounting
from gpuferry.monitor.views.stats.history import History
from gpuferry.monitor.views.stats.observatory import Observatory
from gpuferry.monitor.views.web.server import WebServer
from gpuferry.monitor.views.web.sockets import listen_http
from gpuferry.specs._generated import control_pb2

from tests.helpers.tokens import token_of

GIB = 1 << 30
KEY = token_of("the page")


class Stage:
    """`show` replaces the status; pages see it with the next event, which comes at once."""

    broker: Any
    pool: Any

    def __init__(
        self,
        status: control_pb2.StatusReply,
        address: str = "127.0.0.1:0",
        connections: int = 64,
        callers: Any = None,
        identity: Identity | None = None,
    ) -> None:
        self._status = status
        self._callers = callers
        self._connections = connections
        self.problems: dict[int, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._call(self._open(address, identity))
        self.url = f"{'https' if identity else 'http'}://{self._server.name}"
        self.link = f"{self.url}/#{KEY}"

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)

    async def _open(self, address: str, identity: Identity | None) -> None:
        async def report(tenant: str | None) -> control_pb2.StatusReply:
            return self._status

        self.broker = SimpleNamespace(draining=False, sessions={})
        self.pool = SimpleNamespace(
            servers={},
            devices=1,
            problems=lambda: self.problems,
            takes_guests=lambda _: any(server.ready for server in self.pool.servers.values()),
        )

        async def ask_arbiter() -> None:
            pass

        reporter: Any = SimpleNamespace(
            report=report, devices=lambda: list(self._status.devices), ask_arbiter=ask_arbiter
        )
        self.observatory = Observatory(self.broker, self.pool, reporter, Accounting(), Announcer())
        self._ticking = asyncio.ensure_future(self.observatory.run())
        self._server = WebServer(
            self.observatory, listen_http(address), KEY, identity, self._callers, self._connections
        )
        await self._server.start()

    def remember(self, seconds: int, make: Any) -> None:
        """A past: the devices that `make(age)` returns, one point per second, `age` from `seconds` to 1."""

        async def fill() -> None:
            self.observatory.history = History()
            for age in range(seconds, 0, -1):
                self.observatory.history.add(time.time() - age, make(age))

        self._call(fill())

    def show(self, status: control_pb2.StatusReply) -> None:
        self._status = status
        self._call(self.observatory.tick())

    def close(self) -> None:
        async def end() -> None:
            await self._server.stop()
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def device(ordinal: int, **changes: Any) -> control_pb2.Device:
    fields: dict[str, Any] = {
        "ordinal": ordinal,
        "name": "NVIDIA A100-SXM4-40GB",
        "uuid": bytes([ordinal + 1]) * 16,
        "driver_version": 13050,
        "memory_total": 40 * GIB,
        "memory_grantable": 39 * GIB,
        "memory_granted": 0,
        "pool_size": 2,
        "pool_idle": 2,
        "default_quota": 19 * GIB,
        "state": control_pb2.DEVICE_STATE_UP,
        "memory_used": GIB,
        "utilization": 0.0,
        "pci_bus_id": f"00000000:{ordinal + 1:02x}:00.0",
        "temperature": 41.0,
        "power": 63.0,
    } | changes
    return control_pb2.Device(**{name: value for name, value in fields.items() if value is not None})


def server(device: int, pid: int, **changes: Any) -> control_pb2.ApiServer:
    fields: dict[str, Any] = {
        "pid": pid,
        "device": device,
        "state": control_pb2.SERVER_STATE_IDLE,
        "rss": 24 << 20,
        "age_seconds": 312.0,
    } | changes
    return control_pb2.ApiServer(**fields)


def session(number: int, **changes: Any) -> control_pb2.Session:
    fields: dict[str, Any] = {
        "id": number,
        "program": "train.py",
        "guest_pid": 4000 + number,
        "device": 0,
        "peer": "10.0.0.7:51334",
        "memory_quota": 8 * GIB,
        "memory_mapped": 3 * GIB,
        "age_seconds": 75.0,
    } | changes
    return control_pb2.Session(**fields)


def monitor(**changes: Any) -> control_pb2.MonitorInfo:
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "pid": 1,
        "uptime_seconds": 3700.0,
        "protocol_version": 1,
        "listening": ["10.0.0.2:7700"],
        "hostname": "gpu-a",
    } | changes
    return control_pb2.MonitorInfo(**fields)


def empty(devices: int = 2) -> control_pb2.StatusReply:
    return control_pb2.StatusReply(
        monitor=monitor(),
        devices=[device(ordinal) for ordinal in range(devices)],
        servers=[server(i // 2, 900 + i) for i in range(2 * devices)],
    )
