"""A reader group's state in text scenarios: how segments, entries and states are written.

Segments are ``epoch.number`` of the stream s/x, ``y:epoch.number`` of s/y. Lines are

    given [y:] 0.0[0-0.5]@10 0.1[0.5-1]@future [end=0.0:30] [checkpoints_max=1]   a stream
    joined r1#7                    reader r1 under nonce 7
    beat r1#7 3 0.0/1@15+2~900     beat 3; 0.0, had under ownership 1, is processed up to event 2 of
                                   the block at byte 15; 900 bytes are unread
    acquired r1#7 0.0 0.1
    released r1#7 0.0/1@15
    completed r1#7 0.0/1@30 > 1.2[0-0.25] 1.3[0.25-0.5]
    left r1#7 0.0/1@20
    lost r1#7 3                    silent since beat 3
    offline r1 0.0@12
    checkpoint c1 user
    reached c1 r1#7 0.0/1@15
    cancelled
    complete? r1                   asks: nothing left to read? what waits for r1?

and what comes of them is the state, as lines that went and lines that came.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from anabranch.client.groups import updates as u
from anabranch.client.groups.apply import apply
from anabranch.client.groups.codec import ReaderGroupCodec
from anabranch.client.groups.invariants import check
from anabranch.client.groups.state import GroupEnd, GroupSegment, ReaderGroupState
from anabranch.client.groups.succession import end_offset
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.model.names import (
    epoch_of,
    number_of,
    parse_segment_name,
    segment_id,
    segment_name,
    stream_ref,
)
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig

REFUSED = "refused: nothing changed"
_SEGMENT = re.compile(r"(?:(?P<stream>\w+):)?(?P<epoch>\d+)\.(?P<number>\d+)")
_KEYS = re.compile(r"\[([\d.]+)-([\d.]+)\]")
CODEC = ReaderGroupCodec()


class GroupLogStory:
    """A state, and the entries that are applied to it."""

    def __init__(self) -> None:
        self.state: ReaderGroupState | None = None

    def perform(self, line: str) -> list[str]:
        """What comes of one line."""
        verb, *words = line.split()
        before = self.state
        if verb == "given":
            self._given(words)
            return list(shown(self._known()))
        assert before is not None
        if verb == "complete?":
            return [f"complete: {before.is_complete}", *self._due(words)]
        update = parse_update(verb, words)
        assert CODEC.decode_update(CODEC.encode_update(update)) == update
        after = apply(before, update)
        assert apply(before, update) == after
        assert CODEC.decode_state(CODEC.encode_state(after)) == after
        check(before, after)
        self.state = after
        if after == before:
            return [REFUSED]
        old, new = list(shown(before)), list(shown(after))
        gone = [f"- {each}" for each in old if each not in new]
        return gone + [f"+ {each}" for each in new if each not in old] or ["(not shown)"]

    def _known(self) -> ReaderGroupState:
        assert self.state is not None
        return self.state

    def _due(self, readers: Sequence[str]) -> Iterator[str]:
        for reader_id in readers:
            nonce = self._known().readers[reader_id].nonce
            due = self._known().due_checkpoint(reader_id, nonce)
            yield f"due for {reader_id}: {'nothing' if due is None else due.name}"

    def _given(self, words: Sequence[str]) -> None:
        stream = "s/x"
        segments: dict[str, GroupSegment] = {}
        ends: list[str] = []
        options: dict[str, int] = {}
        for word in words:
            if word.endswith(":"):
                stream = f"s/{word[:-1]}"
            elif word.startswith("end="):
                ends = word.removeprefix("end=").split(",")
            elif "=" in word:
                name, value = word.split("=")
                options[name] = int(value)
            else:
                new = _segment(word, stream)
                segments[new.name] = new
        self._add(stream, segments, [_end(each, segments, stream) for each in ends], options)

    def _add(
        self,
        stream: str,
        segments: dict[str, GroupSegment],
        ends: list[GroupEnd],
        options: dict[str, int],
    ) -> None:
        new = {n: replace(each, end_offset=end_offset(ends, n)) for n, each in segments.items()}
        known = self.state
        streams = (GroupStream(stream),)
        if known is None:
            config = ReaderGroupConfig(streams, checkpoints_max=options.get("checkpoints_max", 3))
            self.state = ReaderGroupState(1, 0, config, new, tuple(ends))
        else:
            config = replace(known.config, streams=known.config.streams + streams)
            self.state = replace(
                known, config=config, segments={**known.segments, **new}, ends=(*known.ends, *ends)
            )


def parse_update(verb: str, words: Sequence[str]) -> u.AnyUpdate:
    """An entry of its line."""
    if verb == "checkpoint":
        return u.CheckpointBegun(name=words[0], checkpoint=words[1])  # type: ignore[arg-type]
    if verb == "cancelled":
        return u.CheckpointsCancelled()
    if verb == "offline":
        places = (word.split("@") for word in words[1:])
        positions = {_name(segment): _position(at) for segment, at in places}
        return u.PutOffline(reader_id=words[0], positions=positions)
    if verb == "reached":
        name, who, *saved = words
        reader_id, nonce = _who(who)
        return u.CheckpointReached(
            name=name, reader_id=reader_id, nonce=nonce, saved=_all_saved(saved)
        )
    return _said(verb, words[0], words[1:])


def _said(verb: str, who: str, words: Sequence[str]) -> u.AnyUpdate:
    reader_id, nonce = _who(who)
    match verb:
        case "joined":
            return u.Joined(reader_id=reader_id, nonce=nonce)
        case "beat":
            saved = _all_saved(words[1:])
            return u.Beat(reader_id=reader_id, nonce=nonce, number=int(words[0]), saved=saved)
        case "acquired":
            names = tuple(_name(word) for word in words)
            return u.Acquired(reader_id=reader_id, nonce=nonce, segments=names)
        case "released":
            return u.Released(reader_id=reader_id, nonce=nonce, saved=_all_saved(words))
        case "completed":
            new = [_segment(word, _stream(words[0])) for word in words[2:]]
            successors = tuple(
                u.GroupSuccessor(each.name, each.segment_id, each.key_start, each.key_end)
                for each in new
            )
            at = _saved(words[0])
            return u.Completed(reader_id=reader_id, nonce=nonce, at=at, successors=successors)
        case "left":
            return u.Left(reader_id=reader_id, nonce=nonce, saved=_all_saved(words))
        case "lost":
            return u.Lost(reader_id=reader_id, nonce=nonce, beat=int(words[0]))
    raise AssertionError(f"no such entry: {verb}")


def _who(word: str) -> tuple[str, int]:
    reader_id, nonce = word.split("#")
    return reader_id, int(nonce)


def _stream(word: str) -> str:
    found = _SEGMENT.match(word)
    assert found is not None, word
    return f"s/{found['stream'] or 'x'}"


def _name(word: str, stream: str | None = None) -> str:
    found = _SEGMENT.match(word)
    assert found is not None, word
    number = segment_id(int(found["epoch"]), int(found["number"]))
    return segment_name(stream_ref(stream or _stream(word)), number)


def _position(word: str) -> Position:
    if word == "future":
        return FUTURE
    offset, _, index = word.partition("+")
    return Position(int(offset), int(index or 0))


def _segment(word: str, stream: str) -> GroupSegment:
    name = _name(word, stream)
    keys = _KEYS.search(word)
    assert keys is not None, word
    _, _, at = word.partition("@")
    number = parse_segment_name(name)[1]
    position = _position(at or "0")
    return GroupSegment(name, number, float(keys[1]), float(keys[2]), position)


def _end(word: str, segments: dict[str, GroupSegment], stream: str) -> GroupEnd:
    place, _, keys = word.partition("[")
    segment, offset = place.split("@")
    name = _name(segment, stream)
    known = _segment(f"{segment}[{keys}@0", stream) if keys else segments[name]
    return GroupEnd(
        name, known.segment_id, known.key_start, known.key_end, _position(offset).offset
    )


def _saved(word: str) -> u.Saved:
    segment, _, rest = word.partition("/")
    ownership, _, at = rest.partition("@")
    place, _, unread = at.partition("~")
    return u.Saved(
        _name(segment), int(ownership), _position(place), int(unread) if unread else None
    )


def _all_saved(words: Sequence[str]) -> tuple[u.Saved, ...]:
    return tuple(_saved(word) for word in words)


# --- showing ----------------------------------------------------------------------------------


def shown(state: ReaderGroupState) -> Iterator[str]:
    """The state as lines."""
    for reader_id, reader in sorted(state.readers.items()):
        yield f"reader {reader_id}#{reader.nonce} beat {reader.beat}"
    for segment in sorted(state.segments.values(), key=lambda each: each.name):
        yield _shown_segment(segment)
    for name in sorted(state.beyond):
        yield f"beyond {_told(name)}"
    for each in state.checkpoints:
        waiting = ",".join(sorted(each.waiting))
        positions = " ".join(f"{_told(n)}@{_at(p)}" for n, p in sorted(each.positions.items()))
        standing = f"waits for {waiting}" if waiting else f"complete by {each.last or 'itself'}"
        yield f"checkpoint {each.number} {each.name} {each.kind} {standing}: {positions}".rstrip()


def _shown_segment(segment: GroupSegment) -> str:
    if segment.is_finished:
        after = " ".join(map(_told, segment.successors)) or "nothing"
        standing = f"finished, then {after}"
    elif segment.owner:
        standing = f"{segment.owner}/{segment.ownership}"
    else:
        standing = "unassigned" if segment.is_unassigned else "future"
    end = "" if segment.end_offset is None else f" to {segment.end_offset}"
    unread = f" ~{segment.unread_bytes}" if segment.unread_bytes else ""
    keys = f"{segment.key_start:g}-{segment.key_end:g}"
    return f"{_told(segment.name)}[{keys}] @{_at(segment.position)}{end} {standing}{unread}"


def _told(name: str) -> str:
    stream, number = parse_segment_name(name)
    prefix = "" if stream.stream == "x" else f"{stream.stream}:"
    return f"{prefix}{epoch_of(number)}.{number_of(number)}"


def _at(position: Position) -> str:
    if position == FUTURE:
        return "future"
    return (
        f"{position.offset}+{position.event_index}"
        if position.event_index
        else (str(position.offset))
    )
