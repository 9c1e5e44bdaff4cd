"""What a referee knows of streams: their lives, works, epochs, and what a roll makes of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.common.model.names import (
    SegmentId,
    StreamRef,
    number_of,
    parse_segment_name,
    segment_id,
    segment_name,
)
from anabranch.common.tier2.state import SegmentState
from anabranch.controller.domain.stream.events import PlannedSegment
from anabranch.segstore.domain.container.decide import Known

CREATE, SCALE, TRUNCATE, SEAL, DELETE = "create", "scale", "truncate", "seal", "delete"
COMMIT, UPDATE = "commit", "update"
Bounds = tuple[float, float]


@dataclass(slots=True)
class Work:
    """One thing that a stream has accepted to do."""

    commands: list[str]
    sealed: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    ranges: tuple[Bounds, ...] = ()
    is_told: bool = False
    cut: Mapping[str, int] = field(default_factory=dict)
    is_checked: bool = False
    batch: tuple[str, ...] = ()
    """Of a commit: the transactions. If the stream rolls, `created` are the segments of the epoch
    that takes them, and `renewed` those of the next one."""
    renewed: tuple[str, ...] = ()
    reference: int = 0


@dataclass(slots=True)
class Life:
    """One incarnation of a stream."""

    ref: StreamRef
    incarnation: int
    scope_incarnation: int
    current: list[str]
    planned: dict[str, Bounds]
    """Every segment that was ever to be, and its keys."""
    joined: bool = False
    status: str = CREATE
    sizes: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    epoch: int = 0
    made_in: dict[str, int] = field(default_factory=dict)
    sealed_in: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    works: dict[str, Work] = field(default_factory=dict)
    epochs: list[tuple[str, ...]] = field(default_factory=list)
    """The segments of every stream epoch."""
    references: list[int] = field(default_factory=list)
    """Of every stream epoch the one that it stands for."""
    is_drained: bool = False

    @property
    def is_over(self) -> bool:
        return self.status in ("deleted", "failed")


def name_in(life: Life, segment: int) -> str:
    """A segment's full name."""
    return segment_name(life.ref, SegmentId(segment))


def gone_before(life: Life, cut: Mapping[str, int]) -> set[str]:
    """The segments of which all keys have gone on to segments of the cut, or to later ones."""
    found = set()
    for name, sealed_in in life.sealed_in.items():
        start, end = life.planned[name]
        over = [
            other
            for other in cut
            if life.planned[other][0] < end and start < life.planned[other][1]
        ]
        if over and all(life.made_in.get(other, 0) >= sealed_in for other in over):
            found.add(name)
    return found


def bounds_of(planned: Iterable[PlannedSegment]) -> tuple[Bounds, ...]:
    """Their keys."""
    return tuple((segment.key_start, segment.key_end) for segment in planned)


def next_epoch(life: Life, segments: Iterable[str], reference: int | None = None) -> None:
    """The stream has these segments from now on. `reference` None: the epoch stands for itself."""
    life.epochs.append(tuple(segments))
    life.references.append(len(life.epochs) - 1 if reference is None else reference)
    life.epoch = len(life.epochs) - 1


def plan_roll(life: Life) -> tuple[str, ...]:
    """The segments to be made for the batch whose turn it is, if it is of another epoch, logically;
    nothing if they were planned before."""
    # A batch comes before a seal, also if that was accepted earlier.
    work = next((life.works[kind] for kind in life.works if kind != SEAL), None)
    if work is None or work is not life.works.get(COMMIT) or work.created:
        return ()
    if work.reference == life.references[-1]:
        return ()
    work.created = _duplicates(life, life.epochs[work.reference], life.epoch + 1)
    work.renewed = _duplicates(life, life.epochs[-1], life.epoch + 2)
    return (*work.created, *work.renewed)


def roll(life: Life, work: Work) -> None:
    """The stream has rolled; a scale that waits is of the new segments."""
    before, reference = life.epochs[-1], life.references[-1]
    next_epoch(life, work.created, work.reference)
    life.sealed_in.update(dict.fromkeys(before, life.epoch))
    life.made_in.update(dict.fromkeys(work.created, life.epoch))
    next_epoch(life, work.renewed, reference)
    life.sealed_in.update(dict.fromkeys(work.created, life.epoch))
    life.made_in.update(dict.fromkeys(work.renewed, life.epoch))
    life.current = list(work.renewed)
    scale = life.works.get(SCALE)
    if scale is not None:
        renewed = dict(zip(before, work.renewed, strict=True))
        scale.sealed = tuple(renewed[name] for name in scale.sealed)
        planned = _duplicates(life, scale.created, life.epoch + 1)
        for name in scale.created:
            del life.planned[name]
        scale.created = planned


def _duplicates(life: Life, names: Iterable[str], epoch: int) -> tuple[str, ...]:
    """Their duplicates of another epoch, which are planned with that."""
    made = []
    for name in names:
        duplicate = name_in(life, segment_id(epoch, number_of(parse_segment_name(name)[1])))
        life.planned[duplicate] = life.planned[name]
        made.append(duplicate)
    return tuple(made)


def may_be_sealed(life: Life, name: str, before: Known) -> bool:
    """Whether some work that the stream has accepted seals the segment now."""
    if isinstance(before, SegmentState) and before.sealed:
        return True
    scale = life.works.get(SCALE)
    if scale is not None and name in scale.sealed and scale.is_told:
        return True
    commit = life.works.get(COMMIT, Work([]))
    if name in commit.created or (commit.is_told and name in life.epochs[-1]):
        return True
    return (
        SEAL in life.works and life.is_drained and SCALE not in life.works and name in life.current
    )
