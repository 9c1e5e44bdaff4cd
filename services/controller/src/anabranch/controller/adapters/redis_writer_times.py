"""`WriterTimes` in Redis: one hash per incarnation of a stream, a field per writer.

Beside the marks, a sorted set per shard tells which streams have marks, and which have changed: a
reader asks for those above the last number that it has seen. `writer_times_scripts.py` has the
formats; `noted_ms` is the server's clock.

All keys expire `mark_ms` after their last change, and an older mark counts as gone even before. The
scripts use commands of Redis 6.2 and trust no data: a key of another type is deleted, and a field
is no mark if it cannot be parsed, or if it lies in the future because the clock was set back.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NoReturn

from anabranch.common.adapters.redis_scripts import CALL_S_MAX, PROTOCOL, RedisScripts
from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.contracts.writer_times import MARK_MS_MAX, WRITERS_MAX, WriterMark
from anabranch.common.errors import InvalidName, Unavailable
from anabranch.common.model.names import SegmentId, StreamRef, stream_ref
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.controller.adapters import writer_times_scripts as scripts
from anabranch.controller.domain.writer_times import (
    KnownMarks,
    Mark,
    MarkPage,
    Noted,
    NotedStream,
    refuse_earlier,
    refuse_lower,
    refuse_more_writers,
)

IDLE_MAX = 16
SCANNED_COUNT = 200
"""Marks in one answer, about: one may name a thousand segments."""
DROPPED_COUNT_MAX = 500
"""Marks in one call, so that no script blocks the server for long."""
_REMEDY = "check that Redis runs and is reachable; until then writers cannot note times"
_CLOSED = "!"


class RedisWriterTimes:
    """Marks under `prefix`; connects at the first call. Raises InvalidSetting."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        writers_max: int = WRITERS_MAX,
        mark_ms: int = MARK_MS_MAX,
        protocol: int = PROTOCOL,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._scripts = RedisScripts(
            url, _REMEDY, protocol=protocol, call_s_max=call_s_max, idle_max=IDLE_MAX
        )
        self._prefix = prefix
        self._writers_max = writers_max
        self._mark_ms = mark_ms

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        answer = await self._call(
            scripts.NOTE,
            self._keys(stream, incarnation),
            str(self._writers_max),
            writer_id,
            str(timestamp_ms),
            _encoded(positions),
            _member(stream, incarnation),
        )
        match answer:
            case [b"noted", _]:
                return
            case [b"earlier", bytes(noted)]:
                refuse_earlier(writer_id, timestamp_ms, int(noted))
            case [b"lower", bytes(segment), bytes(offset), bytes(noted)]:
                refuse_lower(writer_id, int(segment), int(offset), int(noted))
            case [b"full", _]:
                refuse_more_writers(stream, self._writers_max)
            case _:
                _refuse()

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        keys = self._keys(stream, incarnation)
        member = _member(stream, incarnation)
        return await self._call(scripts.REMOVE, keys, writer_id, member) == 1

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """See `WriterTimes.page`."""
        key = self.key(stream, incarnation)
        now_ms, following, *rest = _words(
            await self._call(scripts.PAGE, [key], after, str(count)), 2
        )
        marks = [
            WriterMark(
                writer_id=mark.writer_id,
                timestamp_ms=mark.timestamp_ms,
                positions=mark.positions,
                noted_ms=mark.noted_ms,
            )
            for mark in _marks(rest)
        ]
        return MarkPage(int(now_ms), tuple(marks), following)

    async def marks(self, stream: StreamRef, incarnation: int) -> KnownMarks:
        """See `WriterTimes.marks`."""
        keys, cursor = self._keys(stream, incarnation), "0"
        found: dict[str, Mark] = {}
        while True:
            answer = await self._call(scripts.SCAN, keys, cursor, str(SCANNED_COUNT))
            generation, cursor, *rest = _words(answer, 2)
            found.update((mark.writer_id, mark) for mark in _marks(rest))
            if cursor == "0":
                return KnownMarks(int(generation), tuple(found.values()))

    async def drop(self, stream: StreamRef, incarnation: int, marks: Sequence[Mark]) -> None:
        """See `WriterTimes.drop`."""
        remaining = iter(marks)
        while some := list(islice(remaining, DROPPED_COUNT_MAX)):
            words = (word for mark in some for word in (mark.writer_id, _beginning(mark)))
            await self._call(scripts.DROP, [self.key(stream, incarnation)], *words)

    async def noted(self, shard: int, generation: int, after: int, count: int) -> Noted:
        """See `WriterTimes.noted`."""
        answer = await self._call(
            scripts.NOTED, self.index(shard), str(generation), str(after), str(count)
        )
        now, *rest = _words(answer, 1)
        numbers = [_number(score) for score in rest[1::2]]
        return Noted(
            int(now),
            max(numbers, default=after if int(now) == generation else 0),
            tuple(_noted(rest[::2], numbers)),
            len(numbers) >= count,
        )

    async def forget(self, noted: NotedStream) -> None:
        """See `WriterTimes.forget`."""
        shard = shard_of_subject(stream_events(noted.stream))
        member = _member(noted.stream, noted.incarnation)
        await self._call(scripts.FORGET, self.index(shard), member, str(noted.number))

    async def close(self) -> None:
        """See `WriterTimes.close`."""
        await self._scripts.close()

    def key(self, stream: StreamRef, incarnation: int) -> str:
        """The key of a stream's marks."""
        return f"{self._prefix}:marks:{{{_member(stream, incarnation)}}}"

    def _keys(self, stream: StreamRef, incarnation: int) -> list[str]:
        shard = shard_of_subject(stream_events(stream))
        return [self.key(stream, incarnation), *self.index(shard)[1:]]

    def index(self, shard: int) -> list[str]:
        """The keys of a shard's numbers, of its index, and of its numbers again: scripts expect the
        last two behind the marks."""
        numbers = f"{self._prefix}:marked:{shard}:numbers"
        return [numbers, f"{self._prefix}:marked:{shard}", numbers]

    async def _call(self, script: str, keys: Sequence[str], *arguments: str) -> object:
        return await self._scripts.call(script, keys, str(self._mark_ms), *arguments)


def _member(stream: StreamRef, incarnation: int) -> str:
    return f"{stream}/{incarnation}"


def _noted(members: Sequence[str], numbers: Sequence[int]) -> Iterator[NotedStream]:
    """The streams of an index, without what is none."""
    for member, number in zip(members, numbers, strict=True):
        name, _, incarnation = member.rpartition("/")
        try:
            yield NotedStream(stream_ref(name), int(incarnation), number)
        except (InvalidName, ValueError):
            continue


def _number(score: str) -> int:
    """0 for a score that is no number of the index."""
    try:
        return int(float(score))
    except (ValueError, OverflowError):
        return 0


def _encoded(positions: StreamCut) -> str:
    return json.dumps([[at.segment_id, at.offset] for at in positions], separators=(",", ":"))


def _beginning(mark: Mark) -> str:
    closed = _CLOSED if mark.is_closed else ""
    return f"{closed}{mark.timestamp_ms}:{mark.noted_ms}:"


def _marks(words: Sequence[str]) -> Iterator[Mark]:
    """The marks of writers and values, without what is none."""
    for writer_id, value in zip(words[::2], words[1::2], strict=True):
        mark = _mark(writer_id, value)
        if mark is not None:
            yield mark


def _mark(writer_id: str, value: str) -> Mark | None:
    """The mark; None if the value has another format."""
    timestamp_ms, noted_ms, positions = value.removeprefix(_CLOSED).split(":", 2)
    try:
        rows: Sequence[tuple[int, int]] = json.loads(positions)
        places = tuple(SegmentOffset(SegmentId(int(s)), int(at)) for s, at in rows)
    except (ValueError, TypeError):
        return None
    return Mark(writer_id, int(timestamp_ms), places, int(noted_ms), value.startswith(_CLOSED))


def _words(answer: object, count_min: int) -> list[str]:
    """The words of a script's answer. Raises Unavailable."""
    if not isinstance(answer, list) or len(answer) < count_min:
        _refuse()
    return [bytes(word).decode(errors="replace") for word in answer]


def _refuse() -> NoReturn:
    raise Unavailable("unexpected answer from Redis: not a time mark", remedy=_REMEDY)
