"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Control = Annotated[
    str | None,
    typer.Option("--control", metavar="ADDRESS", help="The monitor's control address [GPUFERRY_CONTROL]"),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="The token [GPUFERRY_TOKEN, GPUFERRY_TOKEN_FILE]"),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable, with a stable schema")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.01, metavar="SECONDS", help="How long to wait for an answer")
]
