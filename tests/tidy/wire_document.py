"""The part of docs/wire.md that the code says: every message with its fields.

Between its two marks nothing is written by hand. Renew it with ``make wire-doc``.
"""

import inspect
import types
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from anabranch.common.wire import messages
from anabranch.common.wire.messages import KINDS
from tidy.source import ROOT

PATH = ROOT / "docs/wire.md"
BEGIN = "<!-- messages: written by make wire-doc -->\n"
END = "<!-- end of messages -->\n"
_PLAIN = {str: "text", bytes: "bytes", int: "integer", bool: "boolean", float: "number"}
_COLUMNS = "  "
_PARTS = (
    messages.Stamp,
    messages.AttributeUpdate,
    messages.BlockPlace,
    messages.AttributeValue,
    messages.MergedSegment,
)


def rendered(text: str) -> str:
    """The document with its messages as the code has them."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, "the document's marks are gone"
    return f"{before}{BEGIN}\n{''.join(_sections())}{END}{after}"


def _sections() -> Iterator[str]:
    for kind in sorted(KINDS):
        yield _section(f"{kind} `{KINDS[kind].__name__}`", KINDS[kind])
    for part in _PARTS:
        yield _section(f"`{part.__name__}`, a map within others", part)


def _section(title: str, struct: type[msgspec.Struct]) -> str:
    lines = [f"### {title}", "", *_told(struct), *_fields(struct)]
    return "\n".join(lines) + "\n"


def _told(struct: type[msgspec.Struct]) -> Iterator[str]:
    """The docstring; lines in columns stay in columns."""
    if struct.__doc__ and "__doc__" in struct.__dict__:
        for line in inspect.cleandoc(struct.__doc__).splitlines():
            yield f"    {line}" if _COLUMNS in line else line
        yield ""


def _fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    found = msgspec.structs.fields(struct)
    if not found:
        return
    hints = get_type_hints(struct)
    yield "| field | type | default |"
    yield "|---|---|---|"
    for field in found:
        default = _default(field)
        yield f"| `{field.encode_name}` | {_type(hints[field.name])} | {default} |"
    yield ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return ""


def _type(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint is type(None):
        return "nil"
    if origin is Literal:
        return ", ".join(f'`"{word}"`' for word in inner)
    if origin is types.UnionType:
        return " or ".join(map(_type, inner))
    if origin is tuple:
        return f"array of {_type(inner[0])}"
    if origin is dict:
        return f"map of {_type(inner[0])} to {_type(inner[1])}"
    assert hint in _PARTS, hint
    return f"`{hint.__name__}`"


if __name__ == "__main__":
    PATH.write_text(rendered(PATH.read_text()))
