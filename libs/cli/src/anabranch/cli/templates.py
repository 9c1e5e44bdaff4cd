r"""Templates of `read --format`: text with fields such as ``{key}\t{payload}\n``. Pure.

A field is a plain name in braces; attributes, conversions and format specifications are refused.
``{{`` and ``}}`` stand for braces.
"""

import string
from dataclasses import dataclass
from typing import Literal, get_args

from anabranch.cli.escapes import unescaped

FieldName = Literal[
    "payload", "payload_base64", "size", "key", "time", "timestamp_ms",
    "stream", "segment", "offset", "index", "position",
]  # fmt: skip
FIELDS: tuple[FieldName, ...] = get_args(FieldName)


@dataclass(frozen=True, slots=True)
class Field:
    """A place for a property of an event."""

    name: FieldName


@dataclass(frozen=True, slots=True)
class Template:
    """Text and fields, in their order."""

    parts: tuple[bytes | Field, ...]

    @property
    def has_positions(self) -> bool:
        return Field("position") in self.parts


def parse_template(text: str) -> Template:
    """The template of this text. Raises ValueError, which lists the fields for an unknown one."""
    parts: list[bytes | Field] = []
    for literal, name, specification, conversion in string.Formatter().parse(text):
        if literal:
            parts.append(unescaped(literal).encode(errors="surrogateescape"))
        if name is None:
            continue
        if specification or conversion:
            raise ValueError(f"a field is a plain name in braces, not {{{name}…}}")
        parts.append(Field(_known(name)))
    return Template(tuple(parts))


def _known(name: str) -> FieldName:
    for field in FIELDS:
        if field == name:
            return field
    raise ValueError(f"unknown field {{{name}}}: use {', '.join(FIELDS)}")
