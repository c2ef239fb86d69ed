"""`gpuferry page`: the link to the monitor's page, with the key that opens it."""

from __future__ import annotations

from gpuferry.guest import endpoint

from ..service.runtime import from_here
from . import reach
from .errors import CliError, Exit


def show_page() -> None:
    """Print the link. Raises CliError if no monitor of this user and machine has a page."""
    published = reach.published(starting=["monitor"])
    address, file = published.get("GPUFERRY_HTTP"), published.get("GPUFERRY_PAGE_KEY_FILE")
    if not (address and file):
        raise CliError(
            Exit.UNREACHABLE,
            "no monitor of yours on this machine has a page",
            "start one with `gpuferry monitor` (--http none is without)",
        )
    url = from_here(address if "://" in address else f"http://{address}")
    try:
        key = endpoint.read_token(file)
    except OSError as error:
        raise CliError(
            Exit.FAILED,
            f"cannot read the page's key: {file}: {error.strerror}",
            "start the monitor again: it writes the key when it starts",
        ) from None
    print(f"{url}/#{key}")
