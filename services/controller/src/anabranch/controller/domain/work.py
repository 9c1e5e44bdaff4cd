"""The next step of an aggregate, as operators see it. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.common.contracts.place import Place


class Wish(NamedTuple):
    """The intent that is being performed.

    `kind`: "" without one; `since_ms`: when it was accepted, 0 if that was not recorded;
    `commands`: those that wait for it.
    """

    kind: str
    since_ms: int = 0
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A due step of an aggregate, and its intent."""

    place: Place
    step: str
    wish: Wish
