"""The parts that the reads of all connections share: read-ahead, turns and untaken answers."""

from dataclasses import dataclass, field

from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.outgoing import Outgoing
from anabranch.segstore.shell.memory.read_ahead import ReadAhead
from anabranch.segstore.shell.memory.tail import CallLater
from anabranch.segstore.shell.memory.turns import Turns


@dataclass(frozen=True, slots=True)
class CatchUp:
    """One per store."""

    ahead: ReadAhead
    turns: Turns = field(default_factory=Turns)
    outgoing: Outgoing = field(default_factory=Outgoing)


def new_catch_up(cache: Cache, clock: Clock, call_later: CallLater) -> CatchUp:
    """With the limits of a store; the read-ahead borrows from `cache`."""
    return CatchUp(ReadAhead(cache, clock, call_later))
