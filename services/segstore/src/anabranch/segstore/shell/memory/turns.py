"""Turns for reads outside memory: a few at a time in the whole store, shared fairly by connections.

A read that must wait for the journal or tier 2 takes a turn and gives it back when it is answered.
Desks with such reads stand in line; after its turn a desk goes to the end, so a connection with a
thousand reads delays another one by a single read. Owned by the event loop's thread.
"""

from collections import OrderedDict
from typing import Protocol

READS_UNDER_WAY_MAX = 4
"""Each holds the bytes that it has read so far: at most about 24 MiB."""


class TakesTurns(Protocol):
    """A desk with reads that must wait."""

    def take_turn(self) -> bool:
        """Begin one read; call `Turns.done` when it ends. False if no read can begin now."""
        ...

    @property
    def wants_turn(self) -> bool:
        """Whether the desk has a read for a further turn."""
        ...


class Turns:
    """The line of a store's desks."""

    def __init__(self, under_way_max: int = READS_UNDER_WAY_MAX) -> None:
        self._under_way_max = under_way_max
        self._line: OrderedDict[TakesTurns, None] = OrderedDict()
        self.under_way = 0
        self._giving = False

    def ask(self, desk: TakesTurns) -> None:
        """Put the desk in line; a desk that is in line keeps its place."""
        self._line[desk] = None
        self._give()

    def leave(self, desk: TakesTurns) -> None:
        """Remove the desk, which has no more reads."""
        self._line.pop(desk, None)

    def done(self) -> None:
        """End a read that took a turn."""
        assert self.under_way > 0
        self.under_way -= 1
        self._give()

    def _give(self) -> None:
        if self._giving:
            return
        self._giving = True
        try:
            while self._line and self.under_way < self._under_way_max:
                desk, _ = self._line.popitem(last=False)
                if desk.take_turn():
                    self.under_way += 1
                    if desk.wants_turn:
                        self._line[desk] = None
        finally:
            self._giving = False
