"""Backslashes: those that a user types for characters of an option, and those that stand for
control characters on a terminal. Pure.
"""

import re

_MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""All but tab and newline: what moves the cursor, changes colours, or reverses the direction."""
_UNREADABLE = re.compile(f"[{_CONTROLS}]")
_UNREADABLE_IN_LINE = re.compile(rf"[{_CONTROLS}\t\n]")


def unescaped(text: str) -> str:
    r"""The text with its \t, \n, \r, \0 and \\ replaced. Raises ValueError for another escape."""
    return _ESCAPE.sub(_meaning, text)


def _meaning(found: re.Match[str]) -> str:
    if found[1] not in _MEANINGS:
        raise ValueError(rf"unknown escape \{found[1]}: use \t, \n, \r, \0 or \\")
    return _MEANINGS[found[1]]


def readable(data: bytes, *, in_line: bool = False) -> str:
    """The bytes as text that cannot drive a terminal; tabs and newlines stay, but for `in_line`."""
    text = data.decode(errors="backslashreplace")
    return (_UNREADABLE_IN_LINE if in_line else _UNREADABLE).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
