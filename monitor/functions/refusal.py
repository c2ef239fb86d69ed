"""How an invocation that failed is answered: in JSON, with the same in headers."""

from __future__ import annotations

import json
import math

from aiohttp import web

from .invocation import Code, Failed

CLOSES = {Code.TOO_LARGE, Code.TOO_SLOW, Code.MALFORMED}  # what is left of the body is not read


def refusal(error: Failed) -> web.Response:
    """The answer."""
    said = {"error": error.code.value, "why": error.why, "ran": error.ran.value}
    if error.trace:
        said["trace"] = error.trace
    response = web.Response(
        status=error.code.status if error.code.status != 499 else 503,
        text=json.dumps(said) + "\n",
        content_type="application/json",
        headers={"X-Gpuferry-Ran": error.ran.value, "X-Gpuferry-Error": error.code.value},
    )
    if error.retry_after:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.code in CLOSES:
        response.force_close()
    return response
