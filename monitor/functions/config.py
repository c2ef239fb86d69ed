"""What a function server is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..policy.invocations.names import POLICIES
from ..settings import options
from ..settings.common import Encryption, Logs
from ..settings.options import option
from ..store.settings import EtcdOptions, store_name

DEFAULT_LISTEN = "127.0.0.1:7788"
PREFIX = "/function/"  # of the paths at which functions are invoked
DRIVERS = ("guest", "sim", "none")


@dataclass(frozen=True, kw_only=True)
class FunctionsOptions(Encryption, Logs, EtcdOptions):
    """What a user may set; each line is a flag, a variable, a key of functions.toml, help and a check."""

    listen: str = option(
        options.address(unix=False), DEFAULT_LISTEN, "Where functions are invoked and commands are taken"
    )
    policy: str = option(options.choice(*POLICIES), POLICIES[0], "Which invocation runs next")
    tokens: int = option(
        options.count(0),
        0,
        "Invocations that may run at once on each GPU; 0: the policy's own number (fcfs: as many as come, "
        "mqfq 2, others 1), and as many as come as long as no GPU is known",
    )
    overrun: float | None = option(
        options.optional(options.seconds()),
        None,
        "How far ahead of others a function may be; of --policy mqfq and auto; none: the policy's own number",
    )
    utilisation: float | None = option(
        options.optional(options.factor(0.0)),
        None,
        "Which part of a GPU's tokens, 0 to 1, may be in use when one more is given; of --policy mqfq; none: "
        "all of them",
    )
    queue: int = option(options.count(1, 1_000_000), 10_000, "Invocations that may wait, of all functions")
    bodies: int = option(
        options.size(),
        1 << 30,
        "Memory for bodies of requests that are not yet answered, and of answers that are not yet read",
    )
    connections: int = option(options.count(8, 100_000), 2048, "Connections at once")
    driver: str = option(
        options.choice(*DRIVERS),
        DRIVERS[0],
        "The CUDA driver of replicas: GPUs elsewhere, this machine's simulated device, or what is there",
    )
    monitor: str | None = option(
        options.optional(options.text("ADDRESS")),
        None,
        "The monitor or registry of the GPUs; none: that of this machine",
        "GPUFERRY_MONITOR",
    )
    control: str | None = option(
        options.optional(options.text("ADDRESS")),
        None,
        "The monitor's control address, to tell it of invocations; none: that of this machine's monitor",
        "GPUFERRY_CONTROL",
    )
    public: bool = option(
        options.switch(), False, "Let anyone invoke who can reach it, also from other machines"
    )
    grace: float = option(options.seconds(), 30.0, "What accepted invocations get when the server stops")
    token_file: str | None = option(
        options.optional(options.path()),
        None,
        "The token of commands, mode 0600; none: one that is made up at each start",
        "GPUFERRY_FUNCTIONS_TOKEN_FILE",
    )
    store: str = option(
        options.Kind("STORE", lambda text: text if text == "none" else store_name(text)),
        "none",
        "Where several function servers have their functions, and what they measure, in common: sqlite, or "
        "etcd:HOST:PORT,HOST:PORT…; none: this one's are its own",
    )
    node: str | None = option(
        options.optional(options.text("NAME")),
        None,
        "With a store: what its GPU server is called there; none: the host of its control address",
    )
    state: str | None = option(
        options.optional(options.path("FOLDER")),
        None,
        "Where deployments are kept; none: where XDG says",
        "GPUFERRY_STATE_DIR",
    )
    # The last one: below it, `option` is this.
    option: Mapping[str, str] = option(
        options.mapping(), {}, "An option of the policy; a name that it does not have lists those that it has"
    )

    @property
    def policy_options(self) -> Mapping[str, str]:
        """All that was said of the policy's own options."""
        named = {"overrun": self.overrun, "limit": self.utilisation}
        return {name: str(value) for name, value in named.items() if value is not None} | dict(self.option)


@dataclass(frozen=True, kw_only=True)
class FunctionsConfig(FunctionsOptions):
    """The settings of one function server, all resolved."""

    runtime: Path
    folder: Path
    token: bytes = field(repr=False)
