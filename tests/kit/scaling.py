"""A stream that is scaled at chosen moments of its clients' conversations.

A step is a packet that a store receives or sends, or a query that a controller receives: whatever
a client waits for lies between two of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.client import EventReader
from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import Message
from kit.client_bench import Bench
from kit.fake_segstore import Direction, Fault, FaultRule, no_faults

Stages = Callable[[Bench], Iterator[str]]


def split(b: Bench) -> Iterator[str]:
    """1 → 2, or the first of several into two."""
    keys = b.stream.current[0].keys
    middle = (keys.start + keys.end) / 2
    yield from b.scaling([0], [(keys.start, middle), (middle, keys.end)])


def merge(b: Bench) -> Iterator[str]:
    """The first two of several → 1."""
    first, second = b.stream.current[:2]
    yield from b.scaling([0, 1], [(first.keys.start, second.keys.end)])


def shift(b: Bench) -> Iterator[str]:
    """All → 3 whose bounds are not the old ones."""
    count = len(b.stream.current)
    yield from b.scaling(range(count), [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])


def chain(b: Bench) -> Iterator[str]:
    """Several scales in a row."""
    yield from shift(b)
    yield from b.scale_to(1)
    yield from split(b)


@dataclass
class Conductor:
    """Performs the next stage at `start` and at every `every`-th step after it; 0: all at once.

    `fault` is asked as the store's own.
    """

    bench: Bench
    stages: Iterator[str]
    start: int
    every: int = 1
    fault: FaultRule = no_faults
    steps: int = 0
    performed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench.store.fault = self._at_packet
        self.bench.control.before_query = lambda _: self._step()

    def _at_packet(self, direction: Direction, message: Message) -> Fault | AnabranchError | None:
        self._step()
        return self.fault(direction, message)

    def _step(self) -> None:
        if self.steps >= self.start:
            if self.every == 0:
                self.performed += self.stages
            elif (self.steps - self.start) % self.every == 0:
                self.performed += [stage for stage in [next(self.stages, "")] if stage]
        self.steps += 1

    def finish(self) -> None:
        """Perform what is left."""
        self.performed += self.stages


def assert_covers(b: Bench, positions: Sequence[str]) -> None:
    """The segments of a cut cover every key once."""
    by_name = {segment.name: segment for segment in b.every_segment()}
    at = 0.0
    for segment in sorted((by_name[name] for name in positions), key=lambda each: each.key_start):
        assert segment.key_start == at, positions
        at = segment.key_end
    assert at == 1.0, positions


async def read_on(b: Bench, reader: EventReader) -> list[tuple[str | None, bytes]]:
    """Everything to the end, as (key, payload); the positions are a cut after every event."""
    found = []
    async for event in reader:
        found.append((event.key, event.payload))
        assert_covers(b, list(reader.positions()))
    return found
