"""Reads what streams hold, key by key, and says what readers must never see.

The order of a key is that of the stream epochs in which its segments stand, and in a segment that
of what was appended. What was truncated or deleted since is read as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from kit.control_lives import Life
from kit.sim_segments import Piece, SimSegments

if TYPE_CHECKING:
    from kit.transaction_referee import Seen, TransactionReferee


@dataclass(frozen=True, slots=True)
class Cut:
    """The tail that somebody was told of; by segment up to where it reaches."""

    incarnation: int
    stream: str
    reach: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Read:
    """A piece where it stands: in which of the key's segments, and up to where it reaches."""

    piece: Piece
    place: int
    segment: str
    end: int


def judge_life(
    referee: "TransactionReferee", segments: SimSegments, life: Life, of: Mapping[str, "Seen"]
) -> Iterator[str]:
    """Everything that is wrong with one incarnation of a stream, in words."""
    if not life.epochs:
        return
    keys = sorted({piece.key for piece in _all(segments, life) if piece.writer})
    reads = {key: list(_reads(segments, life, key)) for key in keys}
    pieces = [piece for piece in _all(segments, life) if piece.writer]
    yield from _whole(pieces, of)
    yield from _together(segments, life)
    for read in reads.values():
        order = [one.piece for one in read]
        yield from _in_commit_order(order, of)
        yield from _in_writers_order(order)
        yield from _around(referee, order, of)
    for cut in referee.cuts:
        if (cut.stream, cut.incarnation) == (str(life.ref), life.incarnation):
            yield from _undivided(life, cut, reads, of)


def _names(life: Life) -> list[str]:
    return list(dict.fromkeys(name for epoch in life.epochs for name in epoch))


def _all(segments: SimSegments, life: Life) -> Iterator[Piece]:
    for name in _names(life):
        yield from segments.contents.get(name, ())


def _reads(segments: SimSegments, life: Life, key: float) -> Iterator[_Read]:
    for place, name in enumerate(_path(life, key)):
        end = 0
        for piece in segments.contents.get(name, ()):
            end += piece.size
            if piece.key == key and piece.writer:
                yield _Read(piece, place, name, end)


def _path(life: Life, key: float) -> list[str]:
    """The segments of a key, in the order in which they are read."""
    found = (
        name
        for epoch in life.epochs
        for name in epoch
        if life.planned[name][0] <= key < life.planned[name][1]
    )
    return list(dict.fromkeys(found))


def _whole(pieces: Sequence[Piece], of: Mapping[str, "Seen"]) -> Iterator[str]:
    there = set(pieces)
    if len(there) != len(pieces):
        yield f"read twice: {[piece for piece in there if pieces.count(piece) > 1]}"
    for seen in of.values():
        mine = {piece for piece in there if piece.transaction == seen.transaction_id}
        due = set(seen.due()) if seen.outcome == "commit" else set()
        if mine != due:
            yield f"{seen.transaction_id} is torn: {mine ^ due}, of {seen}"
    for piece in there:
        if piece.transaction and piece.transaction not in of:
            yield f"{piece} is in another stream's segments"


def _together(segments: SimSegments, life: Life) -> Iterator[str]:
    for name in _names(life):
        runs = [t for t, _ in groupby(p.transaction for p in segments.contents.get(name, ()))]
        whole = [transaction for transaction in runs if transaction]
        if len(set(whole)) != len(whole):
            yield f"{name} holds transactions in pieces"


def _in_commit_order(order: Sequence[Piece], of: Mapping[str, "Seen"]) -> Iterator[str]:
    places = [of[piece.transaction].order for piece in order if piece.transaction in of]
    if places != sorted(places):
        yield f"commit order is broken: {places}"


def _in_writers_order(order: Sequence[Piece]) -> Iterator[str]:
    by_writer: dict[tuple[str, str, str], list[int]] = {}
    for piece in order:
        who = (piece.writer, piece.transaction, piece.part)
        by_writer.setdefault(who, []).append(piece.number)
    for writer, numbers in by_writer.items():
        if any(first >= second for first, second in pairwise(numbers)):
            yield f"the order of {writer} is broken: {numbers}"


def _around(
    referee: "TransactionReferee", order: Sequence[Piece], of: Mapping[str, "Seen"]
) -> Iterator[str]:
    """Plain events taken before the outcome come before, those sent after the end come after."""
    for place, piece in enumerate(order):
        seen = of.get(piece.transaction)
        if seen is None:
            continue
        for other in order[place:]:
            if not other.transaction and referee.taken[other] <= seen.decided_step:
                yield f"{other} was taken before {seen.transaction_id} was decided, comes later"
        for other in order[:place]:
            end = seen.committed_step
            if not other.transaction and end is not None and referee.sent[other] > end:
                yield f"{other} was sent after {seen.transaction_id} ended, and comes before"


def _undivided(
    life: Life, cut: Cut, reads: Mapping[float, Sequence[_Read]], of: Mapping[str, "Seen"]
) -> Iterator[str]:
    before: dict[str, set[bool]] = {}
    for key, read in reads.items():
        path = _path(life, key)
        at = next((place for place, name in enumerate(path) if name in cut.reach), None)
        if at is None:
            yield f"{cut} has no segment of {key}"
            return
        for one in read:
            if one.piece.transaction in of:
                is_before = one.place < at or (
                    one.place == at and one.end <= cut.reach[one.segment]
                )
                before.setdefault(one.piece.transaction, set()).add(is_before)
    for transaction, sides in before.items():
        if len(sides) > 1:
            yield f"{cut} divides {transaction}"
