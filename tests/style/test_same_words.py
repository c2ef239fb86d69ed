"""What stands in several places because none of them may import another is the same there."""

import re
from pathlib import Path

from gpuferry.guest import endpoint
from gpuferry.migration import follow

ROOT = Path(__file__).parents[2]


def test_addresses_of_tls_begin_alike() -> None:
    """In the launcher, which imports the standard library alone, in migration, and in the guest library."""
    header = (ROOT / "guest/src/transport.h").read_text()
    scheme = re.search(r'#define GF_TLS_SCHEME "(.+)"', header)
    assert scheme
    assert endpoint.TLS_SCHEME == follow.TLS_SCHEME == scheme[1]
