"""Where the keys of a busy segment lie: a sample of its events, kept up to date at a bounded cost.

    every gap-th event ──its key's position──▶ one of 256 slots, drawn by chance ──▶ summary

The gap varies by chance around its mean, so that writers which repeat their keys in a fixed order
are sampled evenly. A full sample forgets exponentially: each new event takes the place of any other
one. The keys of compressed blocks count as unread, because a store never decompresses.

Bounds: a store sketches its 32 busiest segments, with 2 KiB each. It looks at about 256 events per
second of all segments together while their samples are small, and at 64 once they are full. If a
segment becomes faster within a period, its gap doubles with every planned number of events, so the
cost grows with the logarithm of the load.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.event_key import event_key

SLOTS = 256
SAMPLED_MIN = 64
"""Fewer events with known keys tell nothing."""
SKETCHES_MAX = 32
"""Of one store."""
SAMPLED_PER_S, SAMPLED_PER_S_MAX = 64.0, 256.0
"""Events of one segment, and of all segments of a store, while their samples are not full."""
FRESHENED_PER_S, FRESHENED_PER_S_MAX = 16.0, 64.0
"""The same of full samples."""
BUSY_EVENTS_PER_S = 5.0
"""A slower segment gets no sketch."""
QUIET_S_MAX = 30.0
"""A sketch outlives a pause between two bursts."""
GROUPS = 48
"""Neighbouring positions are told as one while they are less than this part of the sample."""

POSITION_BITS = 32
KEYLESS, UNREAD = 1 << POSITION_BITS, (1 << POSITION_BITS) + 1
"""In place of a position."""
_SIZE_BITS = 31
_SIZE_MASK = (1 << _SIZE_BITS) - 1
_MULTIPLIER, _INCREMENT, _MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1
"""Knuth's generator: the choice of slots and gaps needs no better one."""


class Plan(NamedTuple):
    """The next period of a sketch: look at every `gap`-th event, and at about `events` of them; 0:
    the segment has been quiet for `quiet_s`, and the sketch goes on as before."""

    gap: int
    events: int
    quiet_s: float = 0.0


class Flow(NamedTuple):
    """The events of a segment in a period. `quiet_s`: for how long its sketch has seen none; None:
    it has no sketch."""

    events: int
    quiet_s: float | None = None
    is_full: bool = False


class Sketch:
    """The sample of one segment. `skip`: how many events pass until the next one is looked at.

    A slot has position and size of an event in one number, so that slots are sorted as they are.
    """

    __slots__ = ("_chance", "_gap", "_left", "_planned", "_slots", "quiet_s", "skip")

    def __init__(self) -> None:
        self.skip = 0
        self.quiet_s = 0.0
        self._chance = 1
        self._gap = self._planned = self._left = 1
        self._slots = array("Q")

    @property
    def is_full(self) -> bool:
        """Whether a new event takes the place of another one."""
        return len(self._slots) == SLOTS

    def begin(self, plan: Plan) -> None:
        """A period begins."""
        self.quiet_s = plan.quiet_s
        if plan.events:
            self._gap, self._planned = plan.gap, plan.events
            self.skip = min(self.skip, 2 * self._gap)
        self._left = self._planned

    def look(self, payload: bytes | memoryview, count: int) -> None:
        """Take samples of an append of `count` events, of which `skip` has been reduced by already,
        below 0."""
        index = self.skip + count
        while index < count:
            self.note(*_seen(payload, index))
            index += 1 + self._draw() % (2 * self._gap - 1)
        self.skip = index - count

    def note(self, position: int, size: int) -> None:
        """Take an event of `size` bytes, at most 1 GiB, into the sample: with its key's position in
        units of 2^-32, KEYLESS or UNREAD."""
        seen = position << _SIZE_BITS | size
        if self.is_full:
            self._slots[self._draw() % SLOTS] = seen
        else:
            self._slots.append(seen)
        self._left -= 1
        if self._left <= 0:
            self._gap *= 2
            self._left = self._planned

    def _draw(self) -> int:
        """31 bits."""
        self._chance = (self._chance * _MULTIPLIER + _INCREMENT) & _MASK
        return self._chance >> 33

    def summary(self) -> KeySketch | None:
        """The sample in at most some hundred numbers; None: it is too small."""
        found = _places(sorted(self._slots))
        unread = found.pop()[1] if found and found[-1][0] == UNREAD else 0
        known = len(self._slots) - unread
        if known < SAMPLED_MIN:
            return None
        size = sum(together for _, _, together in found)
        _, keyless, keyless_size = found.pop() if found[-1][0] == KEYLESS else (0, 0, 0)
        positions, events, sizes = _grouped(found, math.ceil(known / GROUPS), size / GROUPS)
        return KeySketch(
            positions=positions,
            events=events,
            sizes=sizes,
            keyless_events=keyless,
            keyless_size=keyless_size,
            unread_events=unread,
        )


_Place = tuple[int, int, int]
"""Position, events, bytes."""


def _seen(payload: bytes | memoryview, index: int) -> tuple[int, int]:
    found = event_key(payload, index)
    if found is None:
        return UNREAD, 0
    key, size = found
    if key is None:
        return KEYLESS, size
    return int(routing_position(key.decode(errors="replace")) * (1 << POSITION_BITS)), size


def _places(seen: Iterable[int]) -> list[_Place]:
    """Each position among these sorted slots."""
    found: list[_Place] = []
    last, count, size = -1, 0, 0
    for one in seen:
        position = one >> _SIZE_BITS
        if position != last:
            if count:
                found.append((last, count, size))
            last, count, size = position, 0, 0
        count += 1
        size += one & _SIZE_MASK
    if count:
        found.append((last, count, size))
    return found


def _grouped(
    places: Iterable[_Place], events_max: int, size_max: float
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Positions, events and bytes of neighbouring places, taken together: a group is a single
    place, or within both limits."""
    positions: list[int] = []
    events: list[int] = []
    sizes: list[int] = []
    for position, count, size in places:
        if not events or events[-1] + count > events_max or sizes[-1] + size > size_max:
            positions.append(position)
            events.append(count)
            sizes.append(size)
        else:
            positions[-1] = position
            events[-1] += count
            sizes[-1] += size
    return tuple(positions), tuple(events), tuple(sizes)


def planned(flows: Sequence[Mapping[str, Flow]], length_s: float) -> list[dict[str, Plan]]:
    """Of each container, the segments to sketch in the next period, after one of `length_s`.

    They are the busiest ones of the store, and those that were sketched and pause.
    """
    eligible = [
        (flow.events, place, name)
        for place, of in enumerate(flows)
        for name, flow in of.items()
        if _is_sketched(flow, length_s)
    ]
    busiest = nlargest(SKETCHES_MAX, eligible)
    wanted = _wanted([flows[place][name] for _, place, name in busiest], length_s)
    plans: list[dict[str, Plan]] = [{} for _ in flows]
    for events, place, name in busiest:
        flow = flows[place][name]
        looks = wanted[flow.is_full]
        gap = max(1, round(events / looks))
        plans[place][name] = Plan(gap, math.ceil(looks) if events else 0, flow.quiet_s or 0.0)
    return plans


def _wanted(flows: Sequence[Flow], length_s: float) -> Mapping[bool, float]:
    """How many events to look at in each segment whose sample is full, and in each other one."""
    full = sum(1 for flow in flows if flow.events and flow.is_full)
    others = sum(1 for flow in flows if flow.events) - full
    return {
        True: length_s * min(FRESHENED_PER_S, FRESHENED_PER_S_MAX / max(1, full)),
        False: length_s * min(SAMPLED_PER_S, SAMPLED_PER_S_MAX / max(1, others)),
    }


def _is_sketched(flow: Flow, length_s: float) -> bool:
    if flow.events >= BUSY_EVENTS_PER_S * length_s:
        return True
    return flow.quiet_s is not None and (flow.events > 0 or flow.quiet_s < QUIET_S_MAX)
