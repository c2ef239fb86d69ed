"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

SECONDS_MOST = 1e9  # gRPC takes an answer that may take for ever for one that is late

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
    float,
    typer.Option(
        "--timeout", min=0.01, max=SECONDS_MOST, metavar="SECONDS", help="How long to wait for an answer"
    ),
]
Number = Annotated[
    int,
    typer.Argument(metavar="SESSION", min=1, max=2**64 - 1, help="Its id, as `session list` shows it"),
]
