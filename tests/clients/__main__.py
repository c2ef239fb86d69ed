"""`python -m tests.clients`: clients from PyPI run their own tests, natively and through gpuferry."""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import BUILD, ROOT

from .environment import build_digest, made, prepare
from .results import MODES, Outcomes, Summary, complete, errors, miscounted, read, stale
from .running import run_module
from .table import Client, Known, clients, known

FOLDER = BUILD / "clients"
MEMORY = "2GiB"


def main() -> int:
    table = clients()
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--client", action="append", choices=[*table], help="default: all")
    parser.add_argument("--module", action="append", metavar="PATTERN", help="modules whose names match")
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time")
    parser.add_argument("--again", action="store_true", help="run what was run with this build, too")
    parser.add_argument("--keep", action="store_true", help="keep results of other builds")
    parser.add_argument("--report", action="store_true", help="make and run nothing: say what is there")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    names = chosen.client or list(table)
    if chosen.report:
        names = [name for name in names if made(table[name], FOLDER / name)]
    modules = {name: _modules(table[name], chosen.module, console) for name in names}
    if not chosen.report:
        _run(table, modules, chosen, console)
    return _report(table, modules, known(), console, whole=not chosen.module)


def _modules(client: Client, patterns: list[str] | None, console: Console) -> list[str]:
    with console.status(f"{client.name}: environment"):
        place = prepare(client, FOLDER / client.name)
    wanted = [f"*{pattern}*" for pattern in patterns or [""]]
    return [name for name in client.names(place) if any(fnmatchcase(name, pattern) for pattern in wanted)]


def _key(device: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Clients of which it is the same share a monitor."""
    return tuple(sorted(device.items()))


def _record(client: str, mode: str, module: str) -> Path:
    return FOLDER / client / mode / (module.replace("/", ".") + ".jsonl")


def _run(
    table: Mapping[str, Client],
    modules: Mapping[str, list[str]],
    chosen: argparse.Namespace,
    console: Console,
) -> None:
    build = build_digest(ROOT)
    todo: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    with ExitStack() as stack:
        columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
        progress = stack.enter_context(Progress(*columns, console=console))
        tasks = {name: progress.add_task(name, total=len(found)) for name, found in modules.items()}
        for name, found in modules.items():
            for module in found:
                todo.put((name, module))
        options = ("--device", "sim", "--memory", MEMORY, "--pool", str(chosen.jobs))
        servers: dict[tuple[tuple[str, str], ...], Monitor] = {}
        for name in modules:
            device = table[name].device
            if _key(device) not in servers:
                servers[_key(device)] = stack.enter_context(monitor(*options, environment=device))
        failed = threading.Event()

        def work() -> None:
            while not failed.is_set():
                try:
                    name, module = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    for mode in MODES:
                        progress.update(tasks[name], description=f"{name} {module.split('.')[-1]} ({mode})")
                        server = servers[_key(table[name].device)]
                        _once(table[name], module, mode, build, chosen, server.settings())
                except BaseException:
                    failed.set()
                    raise
                progress.update(tasks[name], advance=1, description=name)

        with ThreadPoolExecutor(chosen.jobs) as workers:
            for done in [workers.submit(work) for _ in range(chosen.jobs)]:
                done.result()


def _once(
    client: Client,
    module: str,
    mode: str,
    build: str,
    chosen: argparse.Namespace,
    settings: Mapping[str, str],
) -> None:
    """Go on where the last run stopped; begin anew if it was of another build."""
    record = _record(client.name, mode, module)
    record.parent.mkdir(parents=True, exist_ok=True)
    stamp = record.with_suffix(".build")
    same = stamp.exists() and (chosen.keep or stamp.read_text() == build)
    if chosen.again or not same:
        for suffix in (".jsonl", ".log", ".stats"):
            record.with_suffix(suffix).unlink(missing_ok=True)
        stamp.write_text(build)
    if not complete(record):
        run_module(client, FOLDER / client.name / "venv", module, record, mode, settings)


def _report(
    table: Mapping[str, Client],
    modules: Mapping[str, list[str]],
    entries: Mapping[str, list[Known]],
    console: Console,
    whole: bool,
) -> int:
    """`whole`: of all modules of each client."""
    wrong: list[str] = []
    summaries = {}
    for name in modules:
        summary, known_here = Summary(), entries.get(name, [])
        results = list(_results(name, modules[name]))
        for native, remote, stats in results:
            summary.add(native, remote, known_here)
            summary.add_stats(stats)
            for check in (errors, stale):
                wrong += [f"{name}: {line}" for line in check(known_here, native, remote)]
        ended = whole and all(complete(_record(name, mode, each)) for mode in MODES for each in modules[name])
        found = miscounted(known_here, [(native, remote) for native, remote, _ in results], ended)
        found += summary.few() if ended else []
        wrong += [f"{name}: {line}" for line in found]
        summaries[name] = summary
    columns = (
        "client",
        "tests",
        "native",
        "remote",
        "without machine code",
        "calls",
        "round trips per 1,000 calls",
    )
    shown = Table(*columns)
    for name, of in summaries.items():
        passes = [f"{of.passed[mode]} of {of.ran[mode]}" for mode in MODES]
        rate = f"{1000 * of.round_trips / of.calls:.0f}" if of.calls else ""
        shares = ", ".join(f"{of.share(mode):.1%}" for mode in MODES)
        shown.add_row(name, str(of.tests), *passes, shares, str(of.calls), rate)
    for line in wrong:
        print(line)
    console.print(shown)
    result = {"clients": {name: asdict(of) for name, of in summaries.items()}, "errors": wrong}
    (FOLDER / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    return 1 if wrong else 0


def _results(name: str, modules: list[str]) -> Iterator[tuple[Outcomes, Outcomes, Path]]:
    for module in modules:
        native, remote = (_record(name, mode, module) for mode in MODES)
        yield read(native), read(remote), remote.with_suffix(".stats")


if __name__ == "__main__":
    sys.exit(main())
