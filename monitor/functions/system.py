"""`/system`: what commands ask, and what the page shows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from ..service.waiting import within
from ..store.interface import StoreError
from .bodies import Bodies, expected
from .catalogue import Catalogue, state_of
from .config import FunctionsConfig
from .deployment import SOURCE_MOST, WrongDeployment, read
from .fleet import Ending, Function, Unit
from .invocation import Failed
from .logbook import LINES_MOST, Line
from .memory import Memory
from .metrics import Metrics, Spent
from .refusal import refusal
from .replica import StartFailed
from .schedule import Schedule
from .shared import Shared

SCHEMA = "gpuferry.functions/1"
READ_SECONDS = 15.0  # for which a follower of logs may not read before it is cut off
RECORD_MOST = 2 * SOURCE_MOST + (64 << 10)  # bytes of a deployment in JSON


class System:
    """Answers what is asked about functions, and changes them."""

    def __init__(
        self,
        config: FunctionsConfig,
        catalogue: Catalogue,
        metrics: Metrics,
        bodies: Bodies,
        schedule: Schedule,
        memory: Memory,
        shared: Shared | None = None,
    ) -> None:
        self._memory = memory
        self._shared = shared
        self._schedule = schedule
        self._config = config
        self._catalogue = catalogue
        self._metrics = metrics
        self._bodies = bodies
        self._began = time.monotonic()

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        one = "/system/functions/{name}"
        return [
            web.get("/system/status", self._status),
            web.get("/system/functions", self._list),
            web.get(one, self._show),
            web.put(one, self._deploy, expect_handler=expected),
            web.delete(one, self._remove),
            web.get(one + "/logs", self._logs),
            web.get("/metrics", self._expose),
        ]

    def shown(self, function: Function) -> dict[str, Any]:
        """A function as commands and the page see it."""
        tally: Mapping[str, int] = self._metrics.tallies.get(function.name, {})
        spent = self._metrics.spent.get(function.name, Spent())
        return {
            **function.deployment.shown(),
            "kind": "program" if function.deployment.command else "python",
            "waiting": function.waiting,
            "running": function.running,
            "replicas": [{**state_of(unit), **self._where(unit)} for unit in function.units],
            "invocations": {kind: tally.get(kind, 0) for kind in ("ok", "failed", "warm", "cold")},
            "mean_seconds": function.seconds,
            "run_seconds": spent.run,
            "gpu_seconds": spent.gpu,
        }

    def _where(self, unit: Unit) -> dict[str, Any]:
        """GPU and residence of the replica's memory, for its entry; nothing if it has none on a GPU."""
        where = self._memory.where(unit.replica)
        if not where:
            return {}
        also = {"also": list(where.also)} if where.also else {}
        return {"gpu": where.gpu, "resident": where.resident, **also}

    async def _status(self, _: web.Request) -> web.Response:
        server = {
            "pid": os.getpid(),
            "uptime_seconds": time.monotonic() - self._began,
            "policy": self._config.policy,
            "tokens": self._config.tokens,
            "driver": self._config.driver,
            "gpus": [
                {"gpu": gpu, "memory": memory}
                for gpu, memory in self._schedule.gpus.items()
                if self._schedule.known
            ],
            "name": self._shared.name if self._shared else "",
            "others": list(self._shared.others) if self._shared else [],
        }
        functions = [self.shown(function) for function in self._catalogue.all()]
        return _json({"schema": SCHEMA, "server": server, "functions": functions})

    async def _list(self, _: web.Request) -> web.Response:
        functions = [self.shown(function) for function in self._catalogue.all()]
        return _json({"schema": SCHEMA, "functions": functions})

    async def _show(self, request: web.Request) -> web.Response:
        return _json({"schema": SCHEMA, "function": self.shown(self._function(request))})

    def _function(self, request: web.Request) -> Function:
        name = request.match_info["name"]
        function = self._catalogue.get(name)
        if function is None:
            raise web.HTTPNotFound(text=f"there is no function {name[:63]!r}\n")
        return function

    async def _deploy(self, request: web.Request) -> web.Response:
        try:
            with self._bodies.hold() as held:
                said = json.loads(await held.read(request, RECORD_MOST))
            wanted = read({**said, "name": request.match_info["name"]} if isinstance(said, dict) else said)
            wanted = dataclasses.replace(wanted, revision=0)
            # Whoever asks may go: a deployment is carried out whole.
            deploying = asyncio.ensure_future(self._catalogue.deploy(wanted))
            deploying.add_done_callback(lambda done: done.cancelled() or done.exception())
            function = await asyncio.shield(deploying)
        except Failed as error:
            return refusal(error)
        except (ValueError, RecursionError) as error:
            return _error(
                400, str(error) if isinstance(error, WrongDeployment) else f"not JSON: {error}"[:200]
            )
        except Ending as error:
            return _error(503, str(error))
        except StartFailed as error:
            return _error(422, f"its first replica did not start: {error}")
        except OSError as error:
            return _error(507, f"it cannot be kept: {error.strerror}")
        except StoreError as error:
            return _error(503, f"the store does not answer: {error}")
        return _json({"schema": SCHEMA, "function": self.shown(function)})

    async def _remove(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            there = await self._catalogue.remove(name)
        except StoreError as error:
            return _error(503, f"the store does not answer: {error}")
        except OSError as error:
            return _error(507, f"it cannot be removed: {error.strerror}")
        if not there:
            raise web.HTTPNotFound(text=f"there is no function {name[:63]!r}\n")
        return web.Response(status=204)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        book = self._function(request).book
        asked = request.query.get("tail", "100")
        tail = min(int(asked), LINES_MOST) if asked.isdecimal() and len(asked) < 10 else 100
        if request.query.get("follow") != "1":
            return web.Response(text=_lines(book.tail(tail)), content_type="application/x-ndjson")
        if not book.room():
            raise web.HTTPTooManyRequests(text="too many follow this function's log\n")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            await response.prepare(request)
            async for lines in book.follow(tail):
                await within(READ_SECONDS, response.write(_lines(lines).encode()))
        except ConnectionResetError:  # who followed has enough
            pass
        except asyncio.TimeoutError:  # it does not read
            if request.transport:
                request.transport.abort()
        return response

    async def _expose(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.expose(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _lines(lines: list[Line]) -> str:
    return "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)


def _json(said: object) -> web.Response:
    return web.Response(text=json.dumps(said), content_type="application/json")


def _error(status: int, why: str) -> web.Response:
    return web.Response(status=status, text=why + "\n")
