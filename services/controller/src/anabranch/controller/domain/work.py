"""What is to be done next for an aggregate, as operators see it. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.common.contracts.place import Place


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
