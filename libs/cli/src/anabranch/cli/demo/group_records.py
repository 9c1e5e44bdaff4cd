"""The records of the demo group's readers, and the checks on them. Pure.

Each reader writes one line for every processed batch, before it asks for the next one. The records
therefore contain every batch that the group counts as processed, even if the reader is killed. A
reader's last line may be torn; the group does not count that batch as processed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

import msgspec

from anabranch.cli.demo.check import Written

LAG_STEP_S = 0.25


class Processed(msgspec.Struct, frozen=True):
    """A batch that a reader processed at `at_s` of the machine's monotonic clock."""

    at_s: float
    segment: str
    rows: list[int]
    hashes: list[int]
    keys: list[str | None]


@dataclass(frozen=True, slots=True)
class Kill:
    """The killed reader. `segments`: those it had; `taken_over_s`: the time at which the group had
    removed it.
    """

    reader_id: str
    at_s: float
    segments: tuple[str, ...]
    taken_over_s: float

    @property
    def takeover_seconds(self) -> float:
        return self.taken_over_s - self.at_s


@dataclass(frozen=True, slots=True)
class ReaderShare:
    """`events` counts new events only; `taken_over`, segments that another reader had before."""

    reader_id: str
    events: int
    segments: int
    taken_over: int


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The results of a group's readers.

    `repeated`: the number of events that were processed again. `repeated_of_others`: those that
    another reader than the killed one had processed first. `repeated_after_s`: the time between the
    first processing of the earliest repeated event and the kill. `lag`: (seconds since `begun_s`,
    when the first event was written; events written and not processed).
    """

    events: int
    missing: int
    changed: int
    out_of_order: int
    repeated: int
    repeated_of_others: int
    repeated_after_s: float
    readers: tuple[ReaderShare, ...]
    kill: Kill | None
    begun_s: float = 0.0
    lag: tuple[tuple[float, int], ...] = ()

    @property
    def moved(self) -> int:
        """The number of times that a segment went to another reader."""
        return sum(share.taken_over for share in self.readers)

    def is_right(self, lease_s: float | None) -> bool:
        """Whether no event was lost, changed or out of order.

        With `lease_s`, only events of the killed reader may be repeated, and none that it had
        processed longer before the kill. None: stores were killed too.
        """
        wrong = self.missing + self.changed + self.out_of_order
        if wrong or self.kill is None:
            return False
        if lease_s is None:
            return True
        return self.repeated_of_others == 0 and self.repeated_after_s <= lease_s


def records_of(data: bytes) -> Iterator[Processed]:
    """A reader's records, without a torn last line."""
    decoder = msgspec.json.Decoder(Processed)
    for line in data.split(b"\n")[:-1]:
        yield decoder.decode(line)


class GroupCheck:
    """Checks every batch in the order of processing; `outcome` returns the result."""

    def __init__(self, written: Written, kill: Kill | None) -> None:
        self._written = written
        self._kill = kill
        self._first: dict[int, tuple[str, float]] = {}
        self._last_of_key: dict[str, int] = {}
        self._readers_of: dict[str, list[str]] = {}
        self._new: dict[str, int] = {}
        self._done: list[tuple[float, int]] = []
        self._changed = self._out_of_order = self._repeated = self._repeated_of_others = 0
        self._earliest_s: float | None = None

    def look(self, records: Mapping[str, Sequence[Processed]]) -> None:
        """Add the records of each reader."""
        lines = [
            [(each.at_s, reader_id, each) for each in noted] for reader_id, noted in records.items()
        ]
        for reader_id in records:
            self._new.setdefault(reader_id, 0)
        for _, reader_id, batch in merge(*lines, key=lambda line: line[0]):
            self._batch(reader_id, batch)

    def _batch(self, reader_id: str, batch: Processed) -> None:
        readers = self._readers_of.setdefault(batch.segment, [])
        if reader_id not in readers:
            readers.append(reader_id)
        for row, content, key in zip(batch.rows, batch.hashes, batch.keys, strict=True):
            hashes = self._written.hashes
            if not 0 <= row < len(hashes) or hashes[row] != content:
                self._changed += 1
            elif row in self._first:
                self._repeat(*self._first[row])
            else:
                self._first[row] = (reader_id, batch.at_s)
                self._new[reader_id] += 1
                self._order(key, row)
        self._done.append((batch.at_s, len(self._first)))

    def _order(self, key: str | None, row: int) -> None:
        if key is not None:
            self._out_of_order += row < self._last_of_key.get(key, -1)
            self._last_of_key[key] = row

    def _repeat(self, first_by: str, first_s: float) -> None:
        self._repeated += 1
        if self._kill is None or first_by != self._kill.reader_id:
            self._repeated_of_others += 1
        elif self._earliest_s is None or first_s < self._earliest_s:
            self._earliest_s = first_s

    def outcome(self, progress: Sequence[tuple[float, int]]) -> GroupOutcome:
        """The result; `progress` has the number of written rows at several times."""
        after_s = 0.0
        if self._earliest_s is not None and self._kill is not None:
            after_s = self._kill.at_s - self._earliest_s
        return GroupOutcome(
            events=len(self._first),
            missing=len(self._written.hashes) - len(self._first),
            changed=self._changed,
            out_of_order=self._out_of_order,
            repeated=self._repeated,
            repeated_of_others=self._repeated_of_others,
            repeated_after_s=after_s,
            readers=tuple(self._share(reader_id) for reader_id in sorted(self._new)),
            kill=self._kill,
            begun_s=progress[0][0] if progress else 0.0,
            lag=lag_of(progress, self._done),
        )

    def _share(self, reader_id: str) -> ReaderShare:
        had = [readers for readers in self._readers_of.values() if reader_id in readers]
        taken_over = sum(readers[0] != reader_id for readers in had)
        return ReaderShare(reader_id, self._new[reader_id], len(had), taken_over)


def lag_of(
    written: Sequence[tuple[float, int]], done: Sequence[tuple[float, int]]
) -> tuple[tuple[float, int], ...]:
    """The number of events written and not processed, every LAG_STEP_S from the first write on.

    Both arguments are counts at times, in the order of time.
    """
    if not written:
        return ()
    start_s, end_s = written[0][0], max(written[-1][0], done[-1][0] if done else 0.0)
    steps = int((end_s - start_s) / LAG_STEP_S) + 2
    found, at_written, at_done = [], 0, 0
    for step in range(steps):
        now_s = start_s + step * LAG_STEP_S
        while at_written < len(written) and written[at_written][0] <= now_s:
            at_written += 1
        while at_done < len(done) and done[at_done][0] <= now_s:
            at_done += 1
        behind = (written[at_written - 1][1] if at_written else 0) - (
            done[at_done - 1][1] if at_done else 0
        )
        found.append((round(step * LAG_STEP_S, 3), max(0, behind)))
    return tuple(found)
