"""Where a read begins and ends: `head`, `tail`, positions as JSON, or a time. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from anabranch.common.errors import InvalidRequest
from anabranch.spark.options.texts import Texts

Positions = Mapping[str, tuple[int, int]]
"""Full segment name → (offset, index) of an event."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The cut of each stream at this Unix time in milliseconds, found as the client finds it."""

    unix_ms: int


Bound = Literal["head", "tail"] | Positions | AtTime

_REMEDY = (
    'give head, tail, positions such as {"scope/stream/0.#epoch.0": [0, 0]}, or a time with a zone '
    "such as 2013-01-01T00:00:00Z"
)


def parse_bound(name: str, options: Texts, default: Bound) -> Bound:
    """The option `name`. Raises InvalidRequest."""
    text = options.get(name)
    if text is None:
        return default
    if text in ("head", "tail"):
        return cast("Literal['head', 'tail']", text)
    if not text.lstrip().startswith(("{", "[")):
        return _time(name, text)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _bad(name, text) from error
    if not isinstance(found, dict):
        raise _bad(name, text)
    return {segment: _position(name, text, place) for segment, place in found.items()}


def _time(name: str, text: str) -> AtTime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise _bad(name, text) from error
    if found.tzinfo is None or found.timestamp() < 0:
        raise _bad(name, text)
    return AtTime(int(found.timestamp() * 1000))


def _position(name: str, text: str, place: object) -> tuple[int, int]:
    match place:
        case [int(offset), int(index)] if (
            offset >= 0 and index >= 0 and not isinstance(offset, bool) | isinstance(index, bool)
        ):
            return offset, index
    raise _bad(name, text)


def _bad(name: str, text: str) -> InvalidRequest:
    return InvalidRequest(f"the option {name} is not understood", remedy=_REMEDY, found=text[:200])
