"""The page's key, which opens the page and the metrics and nothing else."""

from __future__ import annotations

import hashlib
import hmac

from gpuferry.guest.endpoint import read_token

from ...settings.errors import ConfigError
from ...settings.tokens import check_strength


def page_key(file: str | None, token: bytes) -> str:
    """The key in the file, else one that follows from the monitor's token and tells nothing of it.

    Raises ConfigError.
    """
    if file is None:
        return hmac.digest(token, b"gpuferry page key 1", hashlib.sha256).hex()
    try:
        key = read_token(file)
    except OSError as error:
        raise ConfigError(f"page key file {file}: {error.strerror}") from None
    check_strength(f"the page's key in {file}", key)
    return key
