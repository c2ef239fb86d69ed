"""`gpuferry registry`: from options to a running registry."""

from __future__ import annotations

from collections.abc import Mapping

from gpuferry.guest.endpoint import runtime_directory

from ..settings.errors import ConfigError
from ..settings.sources import fields_of, load


def run_registry(flags: Mapping[str, str | None], file: str | None) -> None:
    """Run a registry with these settings until it is told to stop. Raises ConfigError."""
    from ..cluster.key import NAME, make_cluster_key, read_cluster_key
    from ..cluster.registry.config import RegistryConfig, RegistryOptions
    from ..cluster.registry.daemon import run, runtime_of
    from ..service import logs
    from ..settings.folders import state_directory
    from ..settings.monitor import choose_token
    from .checks.secrecy import warn_of_exposed

    chosen = load(RegistryOptions, "registry", flags, file).values
    logs.configure(chosen.log_level, chosen.log_format)
    state = state_directory(chosen.state)
    token, given = choose_token(chosen.token_file)
    key = read_cluster_key(chosen.cluster_key_file, state)
    if key is None:
        if chosen.store != "sqlite":
            raise ConfigError(
                "replicas share a cluster key, and none was given",
                f"`openssl rand -hex 32 > {NAME}`, then --cluster-key-file {NAME} for each",
            )
        key = make_cluster_key(state)
    for secret in (token, key):
        logs.hide(secret.decode())
    warn_of_exposed(chosen)
    config = RegistryConfig(
        **fields_of(chosen),
        runtime=runtime_of(runtime_directory()),
        token=token,
        cluster_key=key,
        cluster_key_path=chosen.cluster_key_file or str(state / NAME),
    )
    run(config, given)
