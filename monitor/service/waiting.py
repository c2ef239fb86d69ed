"""Waiting that loses nothing: neither a cancellation, nor the death of a task that nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """The work's result. Raises TimeoutError if there is none in time, or the work was cancelled elsewhere.
    It is over then.

    Before Python 3.12 asyncio.wait_for forgets a cancellation that comes at the moment when the work ends.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # whoever was cancelled here does not look at it


async def until(stopping: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until it is time to stop. Raises what ended one of the tasks, so that none dies unseen."""
    waiting = asyncio.ensure_future(stopping.wait())
    others = set(tasks)
    try:
        while not waiting.done():
            await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in others if task.done()]:
                others.remove(task)
                if task.cancelled():
                    raise RuntimeError(f"{task} was cancelled")
                task.result()
    finally:
        waiting.cancel()


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel these tasks and wait until all have ended, however they do."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
