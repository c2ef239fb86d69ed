"""The flags that a class of options declares, for typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..settings.options import Option, options_of

Flags = Mapping[str, str | None]  # texts by option name; None: not given
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Settings from this file alone [GPUFERRY_CONFIG]"),
]


class CommandByTopic(TyperCommand):
    """A command with many options, whose help lists them under the headings that they were declared with."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        topics: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                topic = getattr(parameter, "rich_help_panel", None) or "Options"
                topics.setdefault(topic, []).append(record)
        for topic, records in topics.items():
            with formatter.section(topic):
                formatter.write_dl(records)


def _parameter(table: type, option: Option) -> inspect.Parameter:
    kind: Any = option.kind
    repeated, switch = dict in kind.toml, kind.toml == (bool,)
    hints = [option.variable] if option.named else []
    hints += [] if repeated or switch else [f"default: {kind.show(getattr(table(), option.name))}"]
    declared = typer.Option(
        *([f"{option.flag}/--no-{option.flag[2:]}"] if switch else [option.flag]),
        metavar=None if switch else kind.metavar,
        help=" ".join([option.help, *(f"[{hint}]" for hint in hints)]),
        show_default=False,
        hidden=option.hidden,
        rich_help_panel=option.topic,
    )
    given: Any = list[str] if repeated else bool if switch else str
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[given | None, declared],
    )


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ",".join(value) if value else None
    return str(value).lower() if isinstance(value, bool) else value


def with_options(table: type, program: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a class's options to a command, whose first parameter gets those that were given, by name."""
    options = list(options_of(table, program))
    example = next(option for option in options if not option.named)
    declared = {option.name: _parameter(table, option) for option in options}
    where = (
        f"Each option is also a key of {program}.toml, and a variable: {example.variable} for {example.flag}."
        f" A flag goes before a variable, a variable before a file: see `gpuferry config show {program}`."
    )
    return with_parameters(declared, where)


def with_parameters(
    declared: Mapping[str, inspect.Parameter], note: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add these parameters to a command, whose first parameter gets their texts, by name. `note`: a paragraph
    more in its help.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        _, *others = signature.parameters.values()

        def run(**given: Any) -> None:
            command({name: _text(given.pop(name)) for name in declared}, **given)

        own = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others]
        run.__name__ = command.__name__
        run.__doc__ = f"{command.__doc__}\n\n{note}".rstrip()
        run.__annotations__ = {}
        run.__signature__ = signature.replace(parameters=[*declared.values(), *own])  # type: ignore[attr-defined]
        return run

    return wrap
