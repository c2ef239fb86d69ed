"""Where settings come from: a flag, else the environment, else a file, else the default. All are strict."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from .errors import UsageError
from .options import Option, options_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

SYSTEM = Path("/etc/gpuferry")
SECRETS = {"token", "password", "secret"}
_TOML_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


@dataclass(frozen=True)
class Settings(Generic[T]):
    """The values, and where each came from: `flag --pool`, `/etc/gpuferry/monitor.toml:3`, `default`."""

    values: T
    sources: Mapping[str, str]


def files(program: str) -> list[Path]:
    """Paths of the files that are read if they exist; a later one goes before an earlier one."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [SYSTEM / f"{program}.toml", Path(base, "gpuferry", f"{program}.toml")]


def may_exist(file: Path) -> bool:
    """Whether the file is there, or cannot be looked for: whoever reads it is told why."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def chosen_files(program: str, explicit: str | None) -> tuple[list[Path], bool]:
    """Paths to read, and whether someone named one: it must exist then, and no other file counts."""
    named = explicit or os.environ.get("GPUFERRY_CONFIG")
    return ([Path(named).absolute()], True) if named else (files(program), False)


def _line_of(content: str, key: str) -> int:
    """The line where a key begins, which tomllib does not tell: after the longest start without that key."""
    lines = content.splitlines()
    before = 0
    for end in range(1, len(lines) + 1):
        try:
            known = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if key in known:
            return before + 1
        before = end
    return before + 1


def _unknown(key: str, known: Mapping[str, Option]) -> str:
    if key in SECRETS or key.removesuffix("s") in SECRETS:
        return f"{key}: a secret does not belong here: write it to a file with mode 0600 and set token_file"
    close = difflib.get_close_matches(key.replace("-", "_"), known, 1)
    advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
    return f"unknown key {key}: {advice}"


def _inner(content: Any) -> str:
    """A table in a table, `a=1:b=2`, or another value as it is."""
    if isinstance(content, dict):
        return ":".join(f"{name}={value}" for name, value in content.items())
    return str(content)


def _from_toml(option: Option, value: Any) -> Any:
    """The parsed value; ValueError if it is of a wrong type or wrong in itself."""
    if type(value) not in option.kind.toml and not (isinstance(value, str) and value == "none"):
        wanted = " or ".join(_TOML_NAMES[kind] for kind in option.kind.toml)
        got = _TOML_NAMES.get(type(value), type(value).__name__)
        raise ValueError(f"{value!r} is {got}: {wanted} is wanted")
    if isinstance(value, dict):
        value = ",".join(f"{name}={_inner(content)}" for name, content in value.items())
    return option.kind.parse(str(value).lower() if isinstance(value, bool) else str(value))


def _read_file(file: Path, known: Mapping[str, Option]) -> dict[str, tuple[Any, str]]:
    try:
        content = file.read_text(encoding="utf-8")
        entries = tomllib.loads(content)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {file}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        digits = [word.rstrip(",)") for word in place.split() if word.rstrip(",)").isdecimal()]
        line = digits[0] if digits else len(content.splitlines())
        raise UsageError(f"{file}:{line}: not TOML: {message}") from None
    found = {}
    for key, value in entries.items():
        where = f"{file}:{_line_of(content, key)}"
        if key not in known:
            raise UsageError(f"{where}: {_unknown(key, known)}")
        try:
            found[key] = (_from_toml(known[key], value), where)
        except ValueError as error:
            raise UsageError(f"{where}: {key}: {error}") from None
    return found


def fits(table: type, program: str, file: Path) -> bool:
    """Whether a settings file can be of this program."""
    try:
        _read_file(file, {option.name: option for option in options_of(table, program)})
    except UsageError:
        return False
    return True


def load(
    table: type[T], program: str, flags: Mapping[str, str | None] | None = None, config: str | None = None
) -> Settings[T]:
    """Every setting of a program. `flags` are the options' texts by name; None: not given."""
    known = {option.name: option for option in options_of(table, program)}
    found: dict[str, tuple[Any, str]] = {}
    candidates, named = chosen_files(program, config)
    for file in candidates:
        if named or may_exist(file):
            found |= _read_file(file, known)
    for option in known.values():
        given = (flags or {}).get(option.name)
        if given is not None:
            try:
                found[option.name] = (option.kind.parse(given), f"flag {option.flag}")
            except ValueError as error:
                raise UsageError(f"{option.flag}: {error}") from None
        elif os.environ.get(option.variable):
            try:
                value = option.kind.parse(os.environ[option.variable])
            except ValueError as error:
                raise UsageError(f"environment variable {option.variable}: {error}") from None
            found[option.name] = (value, f"environment variable {option.variable}")
    values = table(**{name: value for name, (value, _) in found.items()})
    return Settings(values, {name: found[name][1] if name in found else "default" for name in known})


def fields_of(values: Any) -> dict[str, Any]:
    """The settings by name, as they are: for the constructor of a class that inherits from the options."""
    return {entry.name: getattr(values, entry.name) for entry in dataclasses.fields(values)}
