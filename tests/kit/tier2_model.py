"""A container as tier 2 sees it: operations in, cuts out, and what must be read back.

The model holds every byte, so that a catalog read from tier 2 can be compared exactly.
"""

from dataclasses import dataclass, field, replace

from anabranch.common.tier2.state import Catalog, SegmentState, Tombstone, WriterKey, WriterMark
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.state import (
    AppendMark,
    ContainerCut,
    SegmentCut,
    UntieredRun,
)
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.tier2_catalog import catalog_of

WRITER = bytes(range(16))


@dataclass
class ModelContainer:
    """Operations take effect at once and count as durable in the log."""

    sequence: int = 0
    segments: dict[str, SegmentState] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    writers: dict[WriterKey, WriterMark] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    marks: dict[int, list[AppendMark]] = field(default_factory=dict)
    fetched: list[tuple[int, int, int]] = field(default_factory=list)

    def create(self, name: str) -> None:
        self.sequence += 1
        self.segments[name] = SegmentState(name, self.sequence, Stamp(1, self.sequence))
        self.tombstones.pop(name, None)
        self.contents[self.sequence] = b""
        self.marks[self.sequence] = []

    def append(self, name: str, data: bytes, *, events: int = 1, writer: bytes = WRITER) -> None:
        self.sequence += 1
        state = self.segments[name]
        self.segments[name] = replace(
            state, length=state.length + len(data), event_count=state.event_count + events
        )
        self.contents[state.number] += data
        mark = AppendMark(state.length + len(data), events, self.sequence)
        self.marks[state.number].append(mark)
        key = (state.number, writer)
        last = self.writers[key].last if key in self.writers else 0
        self.writers[key] = WriterMark(last + events, self.sequence)

    def seal(self, name: str) -> None:
        self.sequence += 1
        self.segments[name] = replace(self.segments[name], sealed=True)

    def delete(self, name: str) -> None:
        self.sequence += 1
        state = self.segments.pop(name)
        self.tombstones[name] = Tombstone(name, Stamp(1, self.sequence), self.sequence, 5)
        self.writers = {k: last for k, last in self.writers.items() if k[0] != state.number}

    def catalog(self) -> Catalog:
        """The state now, without the extents, to begin a cut at."""
        return Catalog(
            self.sequence, dict(self.segments), dict(self.tombstones), dict(self.writers)
        )

    def cut(self, before: Catalog) -> ContainerCut:
        """All that changed since the catalog, as the container would hand it over."""
        return ContainerCut(
            after_sequence=before.applied_sequence,
            sequence=self.sequence,
            segments=tuple(
                self._segment_cut(before, state)
                for state in self.segments.values()
                if before.segments.get(state.name) != state
            ),
            tombstones=tuple(
                tombstone
                for tombstone in self.tombstones.values()
                if before.tombstones.get(tombstone.name) != tombstone
            ),
            writers={k: v for k, v in self.writers.items() if before.writers.get(k) != v},
        )

    def _segment_cut(self, before: Catalog, state: SegmentState) -> SegmentCut:
        held = before.segments.get(state.name)
        tiered = held.length if held is not None and held.number == state.number else 0
        marks = tuple(mark for mark in self.marks[state.number] if mark.offset > tiered)
        return SegmentCut(state, (UntieredRun(tiered, marks),) if marks else ())

    async def fetch(self, number: int, offset: int, length: int) -> bytes:
        self.fetched.append((number, offset, length))
        return self.contents[number][offset : offset + length]

    def matches(self, catalog: Catalog) -> bool:
        """The catalog is this state, exactly; extents apart."""
        return (
            catalog.applied_sequence == self.sequence
            and catalog.segments == self.segments
            and catalog.tombstones == self.tombstones
            and catalog.writers == self.writers
        )


async def read_back(tier_two: ContainerTierTwo) -> dict[str, bytes]:
    """Every living segment's bytes, read through the catalog's extents."""
    found: dict[str, bytes] = {}
    catalog = await catalog_of(tier_two)
    for name, state in catalog.segments.items():
        extents = catalog.extents[state.number]
        found[name] = b"".join(
            [await tier_two.read(extent.ref, 0, extent.ref.length) for extent in extents]
        )
        assert len(found[name]) == state.length
    return found


def expected_contents(model: ModelContainer) -> dict[str, bytes]:
    return {name: model.contents[state.number] for name, state in model.segments.items()}


def small_container() -> ModelContainer:
    """Two segments of a few bytes, one sealed, and a deleted one."""
    model = ModelContainer()
    model.create("s/a/0.#epoch.0")
    model.create("s/a/1.#epoch.0")
    model.create("s/a/2.#epoch.0")
    model.append("s/a/0.#epoch.0", b"one" * 7, events=7)
    model.append("s/a/1.#epoch.0", b"two" * 5, events=5)
    model.append("s/a/0.#epoch.0", b"three" * 3, events=3)
    model.append("s/a/2.#epoch.0", b"gone", events=1)
    model.seal("s/a/1.#epoch.0")
    model.delete("s/a/2.#epoch.0")
    return model
