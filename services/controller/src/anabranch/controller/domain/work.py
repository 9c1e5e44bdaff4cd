"""What is to be done next for an aggregate, as operators see it. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

_GROUP_MARK = "+"
"""Behind the names of reader groups, because streams may have the same."""


class Place(NamedTuple):
    """What an aggregate is, in the words of queries.

    Neither `stream` nor `group`: the scope itself. `transaction`: that one of the stream.
    """

    scope: str
    stream: str | None = None
    group: str | None = None
    transaction: str | None = None

    @property
    def name(self) -> str:
        """The name by which work is sorted and found again; of two aggregates never the same."""
        if self.group is not None:
            return f"{self.scope}/{self.group}{_GROUP_MARK}"
        names = (self.scope, self.stream, self.transaction)
        return "/".join(name for name in names if name is not None)


class Wish(NamedTuple):
    """The intent that is being performed.

    `kind`: "" where there is none; `since_ms`: since when it is pending, 0 where not remembered;
    `commands`: those that wait for it.
    """

    kind: str
    since_ms: int = 0
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A step that an aggregate has to do, and the intent that it belongs to."""

    place: Place
    step: str
    wish: Wish
