"""Admits connections to a store up to a limit in total and a limit per peer.

A peer is an address. Without its own limit, one peer could open idle connections until all others
are refused.
"""

from collections import Counter
from typing import Generic, TypeVar

from anabranch.common.errors import Overloaded
from anabranch.segstore.server.room import Room
from anabranch.segstore.server.turns import Turns

C = TypeVar("C")


class Admission(Generic[C]):
    """The connections of one server, and the room and the turns that they share."""

    def __init__(self, *, connections_max: int, per_peer_max: int, unfinished_max: int) -> None:
        self._connections_max = connections_max
        self._per_peer_max = per_peer_max
        self._open: dict[C, str] = {}
        self._by_peer: Counter[str] = Counter()
        self.room = Room(unfinished_max)
        self.turns = Turns()

    def __len__(self) -> int:
        return len(self._open)

    def connections(self) -> tuple[C, ...]:
        """The open connections."""
        return tuple(self._open)

    def admit(self, connection: C, peer: str) -> None:
        """Count a connection. Raises Overloaded without counting it."""
        if len(self._open) >= self._connections_max:
            raise Overloaded("the store has too many connections", limit=self._connections_max)
        if self._by_peer[peer] >= self._per_peer_max:
            raise Overloaded(
                "the store has too many connections from this address",
                remedy="use one client for many writers and readers, or raise "
                "ANABRANCH_SEGSTORE_CONNECTIONS_PER_PEER_MAX",
                limit=self._per_peer_max,
                peer=peer,
            )
        self._open[connection] = peer
        self._by_peer[peer] += 1

    def remove(self, connection: C) -> None:
        """Stop counting a connection that is gone; harmless if it was not admitted."""
        peer = self._open.pop(connection, None)
        if peer is None:
            return
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]
