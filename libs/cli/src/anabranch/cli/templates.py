r"""Templates of `--format`: text with fields such as ``{key}\t{payload}\n``. Pure.

A field is a plain name in braces; attributes, conversions and format specifications are refused.
``{{`` and ``}}`` stand for braces.
"""

import string
from collections.abc import Collection
from dataclasses import dataclass

from anabranch.cli.escapes import unescaped

EVENT_FIELDS = (
    "payload", "payload_base64", "size", "key", "time", "timestamp_ms",
    "stream", "segment", "offset", "index", "position",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A place for a property of the thing that is printed."""

    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """Text and fields, in their order."""

    parts: tuple[bytes | Field, ...]

    @property
    def has_positions(self) -> bool:
        return Field("position") in self.parts


def parse_template(text: str, fields: Collection[str] = EVENT_FIELDS) -> Template:
    """The template of this text. Raises ValueError, which lists the fields for an unknown one."""
    parts: list[bytes | Field] = []
    for literal, name, specification, conversion in string.Formatter().parse(text):
        if literal:
            parts.append(unescaped(literal).encode(errors="surrogateescape"))
        if name is None:
            continue
        if specification or conversion:
            raise ValueError(f"a field is a plain name in braces, not {{{name}…}}")
        if name not in fields:
            raise ValueError(f"unknown field {{{name}}}: use {', '.join(fields)}")
        parts.append(Field(name))
    return Template(tuple(parts))
