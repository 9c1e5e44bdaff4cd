"""A random life of a store's reads: desks that read on, jump, pause and go, under a small cache.

After every step the right bytes must have come, and memory must be as promised: the read-ahead
within its quarter, both classes within the budget, and what is counted as lent what is held.
"""

from dataclasses import dataclass

from anabranch.common.wire.messages import Failed, SegmentRead, Stamp, TruncateSegment
from kit.container_driver import SEGMENT, WRITER
from kit.desk_driver import Desk, DeskDriver
from kit.rng import seeded

SEGMENTS = (SEGMENT, SEGMENT.replace("/0.", "/1."))
DESKS = 4


@dataclass
class Written:
    """What a segment must hold, from its start on."""

    data: bytes = b""
    start: int = 0
    appends: int = 0
    truncations: int = 0


class CatchUpLife:
    """One life. `run` raises AssertionError when a promise is broken."""

    def __init__(self, seed: int, cache_size: int, block_size: int) -> None:
        self._rng = seeded(seed)
        self._block_size = block_size
        self.driver = DeskDriver(cache_size=cache_size)
        self._segments = {segment: Written() for segment in SEGMENTS}
        self._desks = [Desk(self.driver) for _ in range(DESKS)]
        self._places: dict[tuple[int, str], int] = {}
        for segment in SEGMENTS:
            self.driver.create(segment)
        self.driver.commit()

    def run(self, steps: int) -> None:
        actions = [self._append, self._flush, self._truncate, self._leave, self._forget]
        try:
            self._fill()
            for _ in range(steps):
                self._rng.choice([*actions, *[self._read] * 8])()
                self._check_memory()
            for segment in SEGMENTS:
                self._read_all(segment)
            self.driver.time.advance(100)
            assert self.driver.cache.lent == 0, "what nobody needs is given up"
        finally:
            self.driver.finish()

    def _fill(self) -> None:
        """Some chunks and some frames that are not in memory."""
        for _ in range(3):
            for _ in range(6):
                self._append()
            self._flush()
        self._append()
        self._forget()

    def _forget(self) -> None:
        self.driver.drop_tail()

    def _append(self) -> None:
        segment = self._rng.choice(SEGMENTS)
        written = self._segments[segment]
        session = self.driver.setup(segment, WRITER)
        for _ in range(self._rng.randint(1, 4)):
            written.appends += 1
            mark = f"{segment} {written.appends} ".encode()
            event = mark * (self._rng.randint(1, self._block_size) // len(mark) + 1)
            written.data += self.driver.append(session, written.appends, [event])
            if self._rng.random() < 0.5:
                self.driver.commit()
        self.driver.commit()

    def _flush(self) -> None:
        self.driver.flush()

    def _truncate(self) -> None:
        if self._rng.random() < 0.8:
            return
        segment = self._rng.choice(SEGMENTS)
        written = self._segments[segment]
        written.truncations += 1
        offset = self._rng.randint(written.start, len(written.data))
        stamp = Stamp(1, 1 + written.truncations)
        request = TruncateSegment(segment=segment, stamp=stamp, offset=offset)
        self.driver.truncate_anywhere(request)
        self.driver.commit()
        state = self.driver.container.applied.state.known(segment)
        written.start = getattr(state, "start", 0)

    def _leave(self) -> None:
        number = self._rng.randrange(DESKS)
        if self._rng.random() < 0.5:
            self.driver.time.advance(self._rng.choice([1, 6, 30]))
            return
        self.driver.wait(_closed(self._desks[number]))
        self._desks[number] = Desk(self.driver)

    def _read(self) -> None:
        """Go on where the desk ended before, or jump."""
        number, segment = self._rng.randrange(DESKS), self._rng.choice(SEGMENTS)
        written = self._segments[segment]
        place = self._places.get((number, segment), 0)
        whole = self._rng.random() < 0.5
        if self._rng.random() < 0.2:
            place, whole = self._rng.randint(0, len(written.data)), False
        for _ in range(self._rng.randint(1, 5)):
            size = self._rng.choice([1, 100, self._block_size * 3, 1 << 20])
            place = self._read_at(self._desks[number], segment, place, size, whole=whole)
        if whole:
            self._places[number, segment] = place

    def _read_at(self, desk: Desk, segment: str, offset: int, size: int, *, whole: bool) -> int:
        written = self._segments[segment]
        reply, data = desk.ask(offset, size, segment=segment, whole_appends=whole)
        if offset < written.start:
            assert isinstance(reply, Failed), reply
            assert reply.code == "segment-truncated"
            return written.start
        assert isinstance(reply, SegmentRead), reply
        assert data == written.data[offset : offset + len(data)], "wrong bytes"
        assert data or offset == len(written.data), "nothing was read"
        assert reply.at_tail == (offset + len(data) == len(written.data))
        return offset + len(data)

    def _read_all(self, segment: str) -> None:
        written = self._segments[segment]
        desk, at = Desk(self.driver), written.start
        while at < len(written.data):
            at = self._read_at(desk, segment, at, self._block_size * 2, whole=True)

    def _check_memory(self) -> None:
        cache, ahead = self.driver.cache, self.driver.catch_up.ahead
        kept = [*ahead._fresh.values(), *ahead._used.values()]
        assert sum(len(found.data) for found in kept) == cache.lent, "lent is what is held"
        assert cache.lent <= cache.size_max // 4, "the read-ahead keeps to its share"
        assert cache.used + cache.lent <= cache.size_max, "the budget holds"
        assert self.driver.catch_up.turns.under_way == 0


async def _closed(desk: Desk) -> None:
    desk.reads.close()
