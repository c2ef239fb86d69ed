"""`gpuferry simulate`: what the scheduling policies would make of a workload."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .choice import check_known
from .errors import CliError, Exit, reason

if TYPE_CHECKING:
    from ..simulator.azure import Slice
    from ..simulator.invocations.workload import Server as InvocationServer
    from ..simulator.workload import Server, Workload

HEAVY = "dgsf-heavy"
COMPARED = ("exclusive", "best-fit", "worst-fit")
SEED_MOST = 2**31  # numpy takes twice as much, and more of them follow it


# What means something with each kind of workload, beside --json.
PAPER = {"seeds", "seed", "page"}
DAY = {"durations", "app_memory", "minutes", "functions", "per_minute", "seed"}
SERVER = {"policy", "gpus", "memory", "bandwidth"}
SESSIONS = SERVER | {"queue", "migration", "workers", "max_wait", "plot"}
TRACE = PAPER | DAY | SERVER | {"tokens", "replicas", "option"}
MEANT = {
    "paper": PAPER,
    "trace": TRACE,
    "make_trace": TRACE,
    "azure": SESSIONS | DAY,
    "recipe": SESSIONS,
}


def simulate(
    context: typer.Context,
    recipe: Annotated[
        str | None,
        typer.Argument(help="dgsf-heavy (default), dgsf-heavy-small, dgsf-light, dgsf-burst or dgsf-fig8"),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Instead: a paper's numbers beside ours: lalb, mqfq, kaas, dgsf, kubeshare"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", help="Instead: policies over invocations, on a day in Azure's 2019 format"
        ),
    ] = None,
    make_trace: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Instead: make up a day of that shape, write it here and use it"),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=5,
            max=20,
            metavar="N",
            help="With a paper or trace: runs, each with random numbers of its own",
        ),
    ] = 10,
    tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With a trace: invocations at once on a GPU")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With a trace: the most replicas of all functions")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="With a trace: an option of the policies that have it; may be repeated",
        ),
    ] = None,
    page: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where a paper's or trace's index.html is written")
    ] = Path("build/simulate"),
    azure: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Instead: calls of a day, Azure Functions 2019 format")
    ] = None,
    durations: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Azure's durations of that day")
    ] = None,
    app_memory: Annotated[Path | None, typer.Option(metavar="CSV", help="Azure's memory of that day")] = None,
    minutes: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Which minutes of the day")] = "1-6",
    functions: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many functions, the most called ones")
    ] = 15,
    per_minute: Annotated[
        int, typer.Option(min=0, metavar="N", help="Scale to so many calls a minute; 0: as they were")
    ] = 325,
    seed: Annotated[
        int, typer.Option(min=0, max=SEED_MOST, metavar="N", help="For the calls' moments in a minute")
    ] = 0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="best-fit, worst-fit, first-fit, exclusive or kubeshare; may be repeated. "
            "With a trace: lalb, mqfq, …",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="fcfs or backfill; may be repeated")
    ] = None,
    migration: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who moves between GPUs: off, dgsf or auto; may be repeated"),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs of the server")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="What each has to give")] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Bytes a second at which memory moves between GPUs, or comes back with a trace; "
            "`measured`: as this machine copies",
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="API servers per GPU")] = None,
    max_wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Refuse who waited so long")
    ] = math.inf,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw utilisation and queue over time")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable, with a stable schema")] = False,
) -> None:
    """Compare the scheduling policies on a recorded workload."""
    if sum(one is not None for one in (recipe, azure, paper, trace, make_trace)) > 1:
        raise CliError(Exit.USAGE, "a recipe, --azure, --paper, --trace and --make-trace exclude each other")
    _check_meant(context)
    if make_trace:
        trace = _made(make_trace, seed)
    if paper is not None or trace:
        from . import invocations

        chances = range(seed, seed + seeds)
        if paper is not None:
            invocations.compare_with(paper, chances, page, as_json)
        else:
            assert trace is not None
            names = [name for names in policy or invocations.COMPARED for name in names.split(",")]
            options = {"tokens": tokens, "pool": replicas}
            given = {name: str(value) for name, value in options.items() if value}
            invocations.replay(
                trace,
                _slice(minutes, functions, per_minute, seed),
                _invocation_server(gpus, memory, bandwidth),
                invocations.variants(names, given, option or []),
                chances,
                page,
                {"durations": durations, "memory": app_memory},
                as_json,
            )
        return
    from ..simulator import report

    if azure:
        workload = _trace(azure, durations, app_memory, minutes, functions, per_minute, seed)
    else:
        workload = _recipe(HEAVY if recipe is None else recipe)
    server = _server(workload.server, gpus, memory, workers, bandwidth)
    runs = []
    for discipline in _known("--queue", queue or ["fcfs"]):
        for fit in _known("--policy", policy or COMPARED):
            for mover in _known("--migration", migration or ["off"]):
                runs.append(report.run(workload, server, fit, discipline, mover, max_wait))
    if plot:
        from ..simulator.plot import draw

        try:
            draw(plot, workload, runs)
        except OSError as error:
            raise CliError(Exit.FAILED, f"cannot write the plot: {reason(error)}") from None
    if as_json:
        print(json.dumps(report.as_json(workload, server, runs), indent=2))
    else:
        from . import terminal

        terminal.console().print(report.table(workload, server, runs))


def _check_meant(context: typer.Context) -> None:
    """Refuse what was given and would change nothing with this kind of workload."""
    given = [name for name in context.params if _is_given(context, name)]
    kind = next((name for name in MEANT if name in given), "recipe")
    for name in given:
        if name not in MEANT[kind] | {kind, "as_json"}:
            flag = f"--{name.replace('_', '-')}"
            workload = "a recipe" if kind == "recipe" else f"--{kind.replace('_', '-')}"
            raise CliError(Exit.USAGE, f"{flag} means nothing with {workload}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _known(option: str, names: Sequence[str]) -> Sequence[str]:
    from ..policy import FITS, MOVERS, QUEUES

    known = {"--policy": FITS, "--queue": QUEUES, "--migration": MOVERS}[option].keys()
    for name in names:
        check_known(option, name, known)
    return names


def _recipe(name: str) -> Workload:
    from ..simulator.dgsf import RECIPES

    check_known("", name, RECIPES, "recipe")
    return RECIPES[name]()


def _made(path: Path, seed: int) -> Path:
    from ..simulator.invocations.trace import generate

    try:
        generate(path, seed=seed)
    except OSError as error:
        raise CliError(Exit.FAILED, f"cannot write the trace: {reason(error)}") from None
    return path


def _slice(minutes: str, functions: int, per_minute: int, seed: int) -> Slice:
    from ..simulator import azure

    first, dash, last = minutes.partition("-")
    try:
        part = azure.Slice(int(first), int(last if dash else first), functions, per_minute or None, seed)
    except ValueError:
        raise CliError(Exit.USAGE, f"--minutes {minutes}: write 1-6, or one number") from None
    if not 1 <= part.first <= part.last <= azure.MINUTES:
        raise CliError(Exit.USAGE, f"--minutes {minutes}: a day has minutes 1 to {azure.MINUTES}")
    return part


def _trace(
    calls: Path,
    durations: Path | None,
    memory: Path | None,
    minutes: str,
    functions: int,
    per_minute: int,
    seed: int,
) -> Workload:
    from ..simulator import azure

    part = _slice(minutes, functions, per_minute, seed)
    try:
        return azure.read(calls, part, durations=durations, memory=memory)
    except (OSError, azure.TraceError) as error:
        raise CliError(Exit.FAILED, f"cannot read the trace: {reason(error)}") from None


def _invocation_server(gpus: int | None, memory: str | None, bandwidth: str | None) -> InvocationServer:
    from ..simulator.invocations.lalb import SERVER

    return replace(
        SERVER,
        gpus=gpus or SERVER.gpus,
        memory=_size("--memory", memory) or SERVER.memory,
        bandwidth=_bandwidth(bandwidth) or SERVER.bandwidth,
    )


def _server(
    usual: Server, gpus: int | None, memory: str | None, workers: int | None, bandwidth: str | None
) -> Server:
    """The workload's own, with what was asked for instead."""
    return replace(
        usual,
        gpus=gpus or usual.gpus,
        memory=_size("--memory", memory) or usual.memory,
        workers=workers or usual.workers,
        bandwidth=_bandwidth(bandwidth) or usual.bandwidth,
    )


def _size(option: str, text: str | None) -> int | None:
    from gpuferry.guest.units import parse_size

    if text is None:
        return None
    try:
        size: int = parse_size(text)
    except ValueError as error:
        raise CliError(Exit.USAGE, f"{option}: {error}") from None
    if not size:
        raise CliError(Exit.USAGE, f"{option} {text}: more than 0 is wanted")
    return size


def _bandwidth(text: str | None) -> float | None:
    if text == "measured":
        from ..simulator.residency import measured_bandwidth

        return measured_bandwidth()
    return _size("--bandwidth", text)
