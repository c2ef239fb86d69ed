"""The registry's store, opened as its settings say."""

from __future__ import annotations

from ...settings.folders import store_path
from ...store.access import access_of
from ...store.choose import open_store
from ...store.interface import Store
from .config import RegistryOptions


def store_of(config: RegistryOptions) -> Store:
    """Open the store. Raises ConfigError, or StoreError."""
    return open_store(config.store, store_path(config.state), access_of(config), config.insecure)
