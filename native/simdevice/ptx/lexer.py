"""PTX tokens. Newlines are tokens, because `.loc` and `.file` end at one and errors name lines."""

from __future__ import annotations

import re
import struct

from .errors import PtxError

_TOKEN = re.compile(
    r"""[ \t\r\f\v]+|//[^\n]*
      |(?P<comment>/\*.*?\*/)
      |(?P<token>\n
        |"(?:\\.|[^"\\\n])*"
        |0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?(?!\w)|0[bB][01]+U?(?!\w)
        |\d+\.\d*(?:[eE][+-]?\d+)?(?!\w)|\d+[eE][+-]?\d+(?!\w)|\d+U?(?![\w])
        |(?:[A-Za-z_$%][\w$]*(?:::[\w$]+)*)(?:\.\w+(?:::\w+)*)*
        |\.\d+(?:[eE][+-]?\d+)?(?!\w)|\.\w+(?:::\w+)*
        |<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!?:;,=(){}\[\]<>@\#])""",
    re.VERBOSE | re.DOTALL,
)
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*|%[\w$]+")
_INTEGER = re.compile(r"(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9]\d*))U?\Z")
_FLOAT = re.compile(
    r"0[fF]([0-9a-fA-F]{8})\Z|0[dD]([0-9a-fA-F]{16})\Z|((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)\Z"
)


def tokenize(text: str, start: int, end: int, line: int) -> list[str]:
    """The tokens of text[start:end]; `line` is the line of `start`."""
    tokens: list[str] = []
    add = tokens.append
    position = start
    match = _TOKEN.match
    while position < end:
        found = match(text, position, end)
        if found is None:
            line += text.count("\n", start, position)
            raise PtxError("", line, text[position : position + 24].split("\n")[0], "not a PTX token")
        position = found.end()
        kind = found.lastgroup
        if kind == "token":
            add(found[0])
        elif kind == "comment":
            tokens.extend("\n" * found[0].count("\n"))
    return tokens


def integer_literal(token: str) -> int | None:
    """The value of an integer literal, or of WARP_SZ, which stands where one may; None if it is neither."""
    if token == "WARP_SZ":
        return 32
    found = _INTEGER.match(token)
    if found is None:
        return None
    hexadecimal, binary, octal, decimal = found.groups()
    if hexadecimal:
        return int(hexadecimal, 16)
    if binary:
        return int(binary, 2)
    # Beyond any PTX type, and Python limits the length of decimal conversions.
    if len(token) > 64:
        return None
    return int(octal, 8) if octal else int(decimal)


def float_literal(token: str) -> float | tuple[int, int] | None:
    """A decimal literal's value; (bits, width) of an exact one, which may be a NaN; None if it is none."""
    found = _FLOAT.match(token)
    if found is None:
        return None
    single, double, decimal = found.groups()
    if single:
        return int(single, 16), 32
    if double:
        return int(double, 16), 64
    return float(decimal)


def float_bits(value: float | tuple[int, int], width: int) -> int:
    """The bits of a float literal in a type of 16, 32 or 64 bits."""
    if isinstance(value, tuple):
        bits, source = value
        if source == width:
            return bits
        value = float(struct.unpack("<f" if source == 32 else "<d", bits.to_bytes(source // 8, "little"))[0])
    pattern = {16: "<e", 32: "<f", 64: "<d"}[width]
    try:
        packed = struct.pack(pattern, value)
    except OverflowError:
        packed = struct.pack(pattern, float("inf") if value > 0 else float("-inf"))
    return int.from_bytes(packed, "little")
