"""Remedies: the caller's next action, in the words of the door through which an error leaves.

There are three doors: the Python client (`api`), HTTP (`http`) and the command (`command`). A
class, or the place that raises an error, gives one text for every door, words for some doors, or
both. The words of a class may hold placeholders for the error's fields; `places_of` adds those that
follow from other fields. Words with a missing field do not apply.

The first of these that applies is the remedy:

1. the raiser's words for the door, 2. the raiser's text for every door,
3. the words of the class for the door, 4. the text of the class for every door.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Door = Literal["api", "http", "command"]
FieldValue = str | int | float | bool | None

DOORS: tuple[Door, ...] = get_args(Door)
_PATHS = {"stream": "streams", "group": "readergroups", "table": "tables"}
_SEGMENT_PARTS = 3
_INTERNAL = "_"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The next action: `text` for every door that has no words of its own.

    ::

        Remedy("seal the stream first", command="`anabranch stream seal {stream}` seals it")
    """

    text: str = ""
    api: str = ""
    http: str = ""
    command: str = ""

    def words(self, door: Door | None) -> str:
        """The words for this door alone; empty if it has none. None: for no door in particular."""
        match door:
            case "api":
                return self.api
            case "http":
                return self.http
            case "command":
                return self.command
            case None:
                return ""


def filled(words: str, places: Mapping[str, str]) -> str:
    """The words with their placeholders filled; empty if one of these is missing."""
    try:
        return words.format_map(places)
    except KeyError:
        return ""


def places_of(fields: Mapping[str, FieldValue]) -> dict[str, str]:
    """The values of placeholders: the fields, and the names that follow from them.

    A stream, a reader group and a table are `scope/name`, even if a field holds the bare name
    beside `scope`; a segment's name gives its stream. `stream_path`, `group_path` and `table_path`
    are paths over HTTP.
    """
    found = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    parts = found.get("segment", "").split("/")
    if len(parts) == _SEGMENT_PARTS:
        found.setdefault("stream", "/".join(parts[:2]))
    for kind, collection in _PATHS.items():
        name = found.pop(kind, "")
        scope, slash, bare = name.rpartition("/")
        scope = scope if slash else found.get("scope", "")
        if scope and bare and not bare.startswith(_INTERNAL):
            found |= {
                kind: f"{scope}/{bare}",
                f"{kind}_path": f"/v1/scopes/{scope}/{collection}/{bare}",
            }
            found.setdefault("scope", scope)
    return found
