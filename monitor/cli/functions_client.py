"""Asking a function server: which, with what token, and what its answers mean."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpuferry.guest import endpoint
from gpuferry.guest.endpoint import TLS_SCHEME

from .errors import CliError, Exit
from .reach import check_token

VARIABLE = "GPUFERRY_FUNCTIONS"
ROOM = "functions"  # the folder within a monitor's
COMMAND = ("functions", "serve")
_NO_HTTP = (http.client.BadStatusLine, http.client.LineTooLong, http.client.UnknownProtocol)


def runtime() -> Path:
    """Return the folder where a function server publishes its address and token."""
    return Path(endpoint.runtime_directory(), ROOM)


def locate(flag: str | None, token_file: str | None) -> tuple[str, str]:
    """Address and token of the server that flag, environment or this machine names. Raises CliError."""
    named = flag or os.environ.get(VARIABLE)
    published = endpoint.published(str(runtime())) if named else endpoint.soon_published(COMMAND, ROOM)
    ours = published.get(VARIABLE)
    address = named or ours
    if not address:
        hint = f"start one with `gpuferry functions serve`, or set {VARIABLE}=HOST:PORT"
        raise CliError(Exit.UNREACHABLE, "no function server: none was named, and none runs here", hint)
    file = token_file or os.environ.get("GPUFERRY_FUNCTIONS_TOKEN_FILE")
    if file is None and "GPUFERRY_FUNCTIONS_TOKEN" in os.environ:
        return address, _sendable(endpoint.first_line(os.environ["GPUFERRY_FUNCTIONS_TOKEN"]))
    if file is None and address == ours:
        file = published.get("GPUFERRY_FUNCTIONS_TOKEN_FILE")
    try:
        return address, _sendable(endpoint.read_token(file) if file else "")
    except OSError as error:
        raise CliError(Exit.DENIED, f"cannot read the token: {error.filename}: {error.strerror}") from None


def _sendable(token: str) -> str:
    """The token. Raises CliError if it is none, for a header cannot hold it."""
    check_token(token, "the function server")
    return token


class Client:
    """Asks one server."""

    def __init__(self, address: str, token: str, timeout: float) -> None:
        # As the URL of a function has it, too.
        self.address = address.removeprefix("http://").replace("https://", TLS_SCHEME, 1).rstrip("/")
        self._token = token
        self._timeout = timeout

    @property
    def url(self) -> str:
        """The server's URL, as browsers have it."""
        scheme, _, name = self.address.rpartition("://")
        return f"{'https' if scheme else 'http'}://{name}"

    def connection(self) -> http.client.HTTPConnection:
        """A connection that is not made yet. Raises CliError if the address is none."""
        try:
            target = endpoint.split_address(self.address)
        except ValueError as error:
            raise CliError(Exit.USAGE, str(error), "as in 127.0.0.1:7788") from None
        if isinstance(target, str):
            raise CliError(Exit.USAGE, f"{self.address!r}: HOST:PORT is wanted")
        if not self.address.startswith(TLS_SCHEME):
            return http.client.HTTPConnection(*target, timeout=self._timeout)
        authority = os.environ.get("GPUFERRY_TLS_CA") or endpoint.published(str(runtime())).get(
            "GPUFERRY_TLS_CA"
        )
        context = ssl.create_default_context(cafile=authority or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return http.client.HTTPSConnection(*target, timeout=self._timeout, context=context)

    @contextmanager
    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, whatever its status. Raises CliError if there is none."""
        connection = self.connection()
        mine = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            with self._explained():
                connection.request(method, path, body=body, headers={**mine, **(headers or {})})
            with self._explained("what it was asked for may have happened; "):
                answer = connection.getresponse()
            yield answer
        finally:
            connection.close()

    @contextmanager
    def _explained(self, already: str = "") -> Iterator[None]:
        """Raise CliError where the server cannot be reached. `already`: what may have happened by then."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, _NO_HTTP) and not isinstance(error, OSError):  # whose words are no reason
                raise self._another() from None
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CliError(
                Exit.UNREACHABLE,
                f"the function server at {self.address} does not answer: {why}",
                already + self._what_next(error),
            ) from None

    def _another(self) -> CliError:
        """The error for an answer that no function server gives."""
        return CliError(
            Exit.UNREACHABLE,
            f"what answers at {self.address} is no function server",
            f"its address is what `gpuferry functions serve` has as --listen [{VARIABLE}]",
        )

    def read(self, answer: http.client.HTTPResponse) -> bytes:
        """All of an answer's body. Raises CliError if it breaks off."""
        with self._explained("what it was asked for may have happened; "):
            return answer.read()

    def _what_next(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"it had {self._timeout:g} s"
        secret = self.address.startswith(TLS_SCHEME)
        if not secret and isinstance(error, ConnectionResetError):  # which http.client raises too
            return f"if it has a certificate, its address is {TLS_SCHEME}{self.address}"
        if secret and isinstance(error, ssl.SSLCertVerificationError):
            return "set GPUFERRY_TLS_CA to the certificate of its authority"
        if secret and isinstance(error, ssl.SSLError):
            return f"if it has no certificate, its address is {self.address.removeprefix(TLS_SCHEME)}"
        return "is it running? `gpuferry functions serve` starts one"

    def json(self, method: str, path: str, said: object = None) -> Any:
        """The JSON of an answer that is one; None: it has no body. Raises CliError."""
        body = None if said is None else json.dumps(said).encode()
        with self.ask(method, path, body) as answer:
            data = self.read(answer)
            check(answer.status, data)
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise self._another() from None


def check(status: int, data: bytes) -> None:
    """Raise CliError if the status is no success; the data says why."""
    if status < 400:
        return
    why = data.decode(errors="replace").strip() or f"status {status}"
    with suppress(ValueError, KeyError, TypeError):
        why = json.loads(why)["why"]
    if status == 401:
        hint = "set GPUFERRY_FUNCTIONS_TOKEN_FILE, or --token-file"
        raise CliError(Exit.DENIED, "the function server does not accept this token", hint)
    kinds = {404: Exit.NOT_FOUND, 400: Exit.USAGE, 429: Exit.NO_CAPACITY, 403: Exit.DENIED}
    raise CliError(kinds.get(status, Exit.FAILED), why)
