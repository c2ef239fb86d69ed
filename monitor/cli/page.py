"""`gpuferry page`: the link to the monitor's page, with the key that opens it."""

from __future__ import annotations

from gpuferry.guest import endpoint

from .errors import CliError, Exit


def show_page() -> None:
    """Print the link. Raises CliError if no monitor of this user and machine has a page."""
    published = endpoint.published()
    address, file = published.get("GPUFERRY_HTTP"), published.get("GPUFERRY_PAGE_KEY_FILE")
    if not (address and file):
        raise CliError(
            Exit.UNREACHABLE,
            "no monitor of yours on this machine has a page",
            "start one with `gpuferry monitor` (--http none is without)",
        )
    url = address if "://" in address else f"http://{address}"
    print(f"{url}/#{endpoint.read_token(file)}")
