"""What a referee sees of the segments of streams in the stores, and requires of them."""

from collections.abc import Callable, Iterable, Mapping, Set

from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.decide import Known
from kit.control_lives import Life
from kit.sim_segments import SimSegments


class Looks:
    """Each requires that the segments are as an event says."""

    def __init__(self, require: Callable[[bool, str], None], segments: SimSegments) -> None:
        self._require = require
        self._segments: Mapping[str, Known] = segments.known
        self._boundaries = segments.boundaries

    def all_live(self, life: Life, names: Iterable[str]) -> None:
        for name in names:
            alive = isinstance(self._segments.get(name), SegmentState)
            self._require(alive, f"{life.ref}: {name} is said to exist")

    def all_sealed(self, life: Life, names: Iterable[str], sizes: Iterable[int]) -> None:
        for name, size in zip(names, sizes, strict=True):
            known = self._segments.get(name)
            right = isinstance(known, SegmentState) and known.sealed and known.length == size
            self._require(right, f"{name} is said to be sealed at {size}, and is {known}")
            life.sizes[name] = size

    def truncatable(self, life: Life, cut: Mapping[str, int]) -> None:
        """Every segment of the cut can be truncated there."""
        for name, offset in cut.items():
            known = self._segments.get(name)
            start = known.start if isinstance(known, SegmentState) else -1
            right = max(0, offset) <= start or offset in self._boundaries(name)
            self._require(right, f"{life.ref}: {name} cannot be truncated at {offset}")

    def unchanged(self, life: Life, made: Set[str]) -> None:
        """A refused truncation leaves the head, and all events."""
        for name in made & (life.planned.keys() - life.gone):
            known = self._segments.get(name)
            kept = isinstance(known, SegmentState) and known.start == max(
                0, life.starts.get(name, 0)
            )
            self._require(kept, f"{name}: a refused truncation gave up some of it")

    def all_deleted(self, life: Life, names: Iterable[str]) -> None:
        for name in names:
            lives = isinstance(self._segments.get(name), SegmentState)
            self._require(not lives, f"{life.ref}: {name} is said to be deleted")

    def rests(self, life: Life, open_scopes: Mapping[str, int]) -> None:
        """In the end a stream is in a legal state, in a scope that is open."""
        legal = ("active", "sealed", "deleted", "failed")
        self._require(life.status in legal, f"{life.ref} is left in {life.status}")
        self._require(not life.works, f"{life.ref} has not ended {sorted(life.works)}")
        lives_in = open_scopes.get(life.ref.scope) == life.scope_incarnation
        self._require(life.is_over or lives_in, f"{life.ref} lives in a dead scope")
        for name in life.planned:
            self._segment_rests(life, name)

    def _segment_rests(self, life: Life, name: str) -> None:
        """In the end a segment is as the state of its stream says."""
        known = self._segments.get(name)
        if life.status == "failed":
            self._require(not isinstance(known, SegmentState), f"{name} was left over")
            return
        if name in life.gone:
            self._require(not isinstance(known, SegmentState), f"{name} should be deleted")
            return
        if not isinstance(known, SegmentState):
            self._require(False, f"{name} is missing")
            return
        sealed = life.status == "sealed" or name not in life.current
        self._require(known.sealed == sealed, f"{name}: sealed is {known.sealed}")
        right = known.start == max(0, life.starts.get(name, 0))
        self._require(right, f"{name} begins at {known.start}")
        if name in life.sizes:
            self._require(known.length == life.sizes[name], f"{name} grew after it was sealed")
