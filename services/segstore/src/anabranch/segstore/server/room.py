"""Room for incomplete packets, bounded for all connections together.

    a packet's head arrives ──fits──────────────────► granted ──complete──► given back
             │                                           ▲  └──too late──► the connection is closed
             └──no room, or the peer has its share──► waits, not read

A packet over 64 KiB claims its whole size as soon as its head gives the size. A granted packet can
therefore always be completed: no packet waits for room while it holds some. Waiting claims are
granted in order, but the claims of a peer that holds its share are skipped. Small packets, and the
bytes that a client sends before its connection stops being read (at most about 256 KiB), come on
top.

A packet must be complete within a time limit from its first byte, without the time in which the
store did not read. If others wait for room, a granted packet that received nothing for a while is
given up at once. Room is thus freed however clients behave. Owned by the event loop's thread.
"""

from collections import Counter
from collections.abc import Callable

from anabranch.common.wire.packet import PACKET_SIZE_BYTES_MAX, PacketParser

SMALL_SIZE_BYTES = 64 * 1024
STILL_S_MAX = 10.0
"""How long a packet may receive nothing while others wait for room."""


class Claim:
    """Room for one packet, once it is `granted`."""

    __slots__ = ("granted", "on_granted", "peer", "size")

    def __init__(self, peer: str, size: int, on_granted: Callable[[], None]) -> None:
        self.peer = peer
        self.size = size
        self.on_granted = on_granted
        self.granted = False


class Room:
    """The room of one store: `size_max` bytes, of which one peer gets at most half."""

    def __init__(self, size_max: int) -> None:
        assert size_max >= 2 * PACKET_SIZE_BYTES_MAX, "a packet must fit into a peer's share"
        self._size_max = size_max
        self._by_peer: Counter[str] = Counter()
        self._waiting: dict[Claim, None] = {}
        self.used = 0

    @property
    def crowded(self) -> bool:
        """Whether a claim waits."""
        return bool(self._waiting)

    def claim(self, peer: str, size: int, on_granted: Callable[[], None]) -> Claim:
        """Claim room for a packet. It is granted on return, or later with a call of
        `on_granted`."""
        claim = Claim(peer, size, on_granted)
        if self._fits(claim) and not self._waiting:
            self._grant(claim)
        else:
            self._waiting[claim] = None
            self._grant_waiting(but=claim)
        return claim

    def give_back(self, claim: Claim) -> None:
        """Give the room back: the packet is complete or given up. Call it once for each claim."""
        if not claim.granted:
            del self._waiting[claim]
        else:
            claim.granted = False
            self.used -= claim.size
            self._by_peer[claim.peer] -= claim.size
            if not self._by_peer[claim.peer]:
                del self._by_peer[claim.peer]
        self._grant_waiting()

    def _grant_waiting(self, but: Claim | None = None) -> None:
        """Grant the claims that fit, in order. `but` is not called back, because its caller sees
        the grant."""
        for claim in tuple(self._waiting):
            if self._by_peer[claim.peer] + claim.size > self._size_max // 2:
                continue
            if not self._fits(claim):
                return
            del self._waiting[claim]
            self._grant(claim)
            if claim is not but:
                claim.on_granted()

    def _fits(self, claim: Claim) -> bool:
        return (
            self.used + claim.size <= self._size_max
            and self._by_peer[claim.peer] + claim.size <= self._size_max // 2
        )

    def _grant(self, claim: Claim) -> None:
        claim.granted = True
        self.used += claim.size
        self._by_peer[claim.peer] += claim.size


class HalfPacket:
    """The incomplete packet of one connection, if it has one."""

    __slots__ = ("_begun_at", "_claim", "_on_granted", "_peer", "_room")

    def __init__(self, room: Room, peer: str, on_granted: Callable[[], None]) -> None:
        self._room = room
        self._peer = peer
        self._on_granted = on_granted
        self._claim: Claim | None = None
        self._begun_at: float | None = None

    @property
    def waits(self) -> bool:
        """Whether reading must stop until the packet is granted its room."""
        return self._claim is not None and not self._claim.granted

    def received(self, parser: PacketParser, now: float, *, completed: bool) -> None:
        """Note parsed bytes; `completed`: they completed packets, so that the rest belongs to a
        new one."""
        if completed:
            self.end()
        if not parser.pending_size_bytes:
            return
        if self._begun_at is None:
            self._begun_at = now
        size = parser.unfinished_size_bytes
        if self._claim is None and size > SMALL_SIZE_BYTES:
            self._claim = self._room.claim(self._peer, size, self._on_granted)

    def read_again(self, now: float) -> None:
        """Restart the packet's time limit: the connection was paused and is read again from now
        on."""
        if self._begun_at is not None:
            self._begun_at = now

    def overdue(self, now: float, received_at: float, seconds_max: float) -> bool:
        """Whether the packet took too long, or receives nothing while others wait for its room."""
        if self._begun_at is None or self.waits:
            return False
        if now - self._begun_at > seconds_max:
            return True
        still_s = now - max(received_at, self._begun_at)
        return self._claim is not None and self._room.crowded and still_s > STILL_S_MAX

    def end(self) -> None:
        """Give the room back: the packet is complete, or the connection is gone."""
        self._begun_at = None
        if self._claim is not None:
            claim, self._claim = self._claim, None
            self._room.give_back(claim)
