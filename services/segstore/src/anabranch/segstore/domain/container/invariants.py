"""The invariants of a container's state, checked in tests and simulation.

SEG-1  a segment's length never falls, and grows only while it is not sealed
SEG-2  a sealed segment stays sealed
SEG-3  a segment's number never changes; a new segment under the name has a higher one
SEG-4  the stamp of a name never falls
SEG-5  a writer's last event number never falls, until it is forgotten
SEG-6  0 ≤ start ≤ length, and every living segment is found by its number
SEG-7  a segment's start never falls
SEG-8  merged bytes lie within their target, and no two sources overlap
SEG-9  a segment's attributes are bounded, in number and in value
SEG-10 the listed transient segments are exactly the living ones, and bear no decision's stamp
SEG-14 only transient segments are merged into a transaction segment, which is merged only
       into a segment of its parent's stream and number
SEG-15 a segment's kind never changes, and is the one that its name gives
SEG-16 a segment's event count never falls, so no event's number is given twice; the number of its
       first kept event never falls and is not above the count
"""

from anabranch.common.model.names import (
    SegmentKind,
    number_of,
    parse_segment_name,
    segment_kind,
    transaction_segment,
    transient_parent,
)
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.messages import NO_DECISION
from anabranch.segstore.domain.container.attributes import ATTRIBUTES_MAX, VALUE_MAX, VALUE_MIN
from anabranch.segstore.domain.container.decide import LENGTH_BYTES_MAX
from anabranch.segstore.domain.container.evolve import SegmentMap


def check_state(state: SegmentMap) -> None:
    """SEG-6, SEG-8, SEG-9, SEG-10, SEG-14 to SEG-16. Raises AssertionError."""
    living = {}
    for name, known in state.segments.items():
        assert known.name == name, f"SEG-6: {known.name} is filed under {name}"
        if isinstance(known, SegmentState):
            living[known.number] = name
            assert 0 <= known.start <= known.length, f"SEG-6: {known}"
            assert known.number <= state.sequence, f"SEG-6: {known}"
            assert known.kind is segment_kind(name), f"SEG-15: {known}"
            assert -1 <= known.start_event_count <= known.event_count, f"SEG-16: {known}"
            assert known.start or not known.start_event_count, f"SEG-16: {known}"
            _check_attributes(known)
    assert living == state.names, "SEG-6: numbers and names disagree"
    assert state.writers.keys() <= living.keys(), "SEG-6: writers of a segment that is gone"
    _check_merged(state)
    _check_transients(state)


def _check_attributes(known: SegmentState) -> None:
    assert len(known.attributes) <= ATTRIBUTES_MAX, f"SEG-9: {known}"
    for value in known.attributes.values():
        assert VALUE_MIN <= value <= VALUE_MAX, f"SEG-9: {known}"


def _check_transients(state: SegmentMap) -> None:
    living = {
        known.name
        for known in state.segments.values()
        if isinstance(known, SegmentState) and known.kind is SegmentKind.TRANSIENT
    }
    assert state.transients == living, "SEG-10: a transient segment is not listed, or not alive"
    for name in living:
        assert state.segments[name].stamp == NO_DECISION, f"SEG-10: {state.segments[name]}"


def _check_merged(state: SegmentMap) -> None:
    places: dict[int, list[tuple[int, int]]] = {}
    for known in state.segments.values():
        if isinstance(known, Tombstone) and known.merged is not None:
            merged = known.merged
            _check_transaction(known.name, merged.target)
            places.setdefault(merged.target_number, []).append(
                (merged.offset, merged.offset + merged.length)
            )
    for number, ranges in places.items():
        target = state.living(number)
        length = target.length if target is not None else LENGTH_BYTES_MAX
        reached = 0
        for offset, end in sorted(ranges):
            assert reached <= offset <= end <= length, f"SEG-8: {number} holds {offset} to {end}"
            reached = end


def _check_transaction(source: str, target: str) -> None:
    if transaction_segment(target) is not None:
        assert transient_parent(source) == target, f"SEG-14: {source} was merged into {target}"
    found = transaction_segment(source)
    if found is not None and found.parent != target:
        of, parent = parse_segment_name(found.parent)
        stream, into = parse_segment_name(target)
        same = (of, number_of(parent)) == (stream, number_of(into))
        assert same, f"SEG-14: {source} was merged into {target}"


def check_step(before: SegmentMap, after: SegmentMap) -> None:
    """SEG-1 … SEG-5, SEG-7 and SEG-16 between two moments of one container, for names that are
    resident at both.

    Raises AssertionError.
    """
    assert after.sequence >= before.sequence, "SEG-3: the sequence number fell"
    for name, old in before.segments.items():
        new = after.segments.get(name)
        if new is not None:
            _check_segment(old, new)
    for number, writers in before.writers.items():
        if number in after.names:
            for writer_id, mark in writers.items():
                now = after.writers.get(number, {}).get(writer_id, mark).last
                assert now >= mark.last, f"SEG-5: a writer's number fell from {mark} to {now}"


def _check_segment(old: SegmentState | Tombstone, new: SegmentState | Tombstone) -> None:
    assert new.stamp >= old.stamp, f"SEG-4: {old} → {new}"
    if isinstance(old, SegmentState) and isinstance(new, SegmentState):
        if new.number != old.number:
            assert new.number > old.number, f"SEG-3: {old} → {new}"
            return
        assert new.length >= old.length, f"SEG-1: {old} → {new}"
        assert new.length == old.length or not old.sealed, f"SEG-1: {old} → {new}"
        assert new.sealed or not old.sealed, f"SEG-2: {old} → {new}"
        assert new.start >= old.start, f"SEG-7: {old} → {new}"
        assert new.event_count >= old.event_count, f"SEG-16: {old} → {new}"
        first = new.start_event_count
        assert first >= old.start_event_count or first == -1, f"SEG-16: {old} → {new}"
