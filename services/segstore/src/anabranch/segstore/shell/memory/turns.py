"""Who may read behind the memory next: a few at a time in the whole store, and in turn.

A read that must wait for the journal or tier 2 takes a turn and gives it back when it is
answered. Desks that have such reads stand in line; after its turn a desk goes to the end, so one
connection with a thousand reads delays another one by a single read. Owned by the event loop's
thread.
"""

from collections import OrderedDict
from typing import Protocol

READS_UNDER_WAY_MAX = 4
"""Each holds what it has read so far: at most about 24 MiB."""


class TakesTurns(Protocol):
    """A desk with reads that must wait."""

    def take_turn(self) -> bool:
        """Begin one read; `Turns.done` follows when it ends. False: none can begin now."""
        ...

    @property
    def wants_turn(self) -> bool:
        """Whether another read is there for a further turn."""
        ...


class Turns:
    """The line of a store's desks."""

    def __init__(self, under_way_max: int = READS_UNDER_WAY_MAX) -> None:
        self._under_way_max = under_way_max
        self._line: OrderedDict[TakesTurns, None] = OrderedDict()
        self.under_way = 0
        self._giving = False

    def ask(self, desk: TakesTurns) -> None:
        """Stand in line; who stands there keeps its place."""
        self._line[desk] = None
        self._give()

    def leave(self, desk: TakesTurns) -> None:
        """The desk has nothing to read any more."""
        self._line.pop(desk, None)

    def done(self) -> None:
        """A read that took a turn has ended."""
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
