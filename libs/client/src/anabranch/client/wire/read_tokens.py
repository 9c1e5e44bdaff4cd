"""The points of the shards that a query demands, so that its caller reads its own writes.

A controller answers from the events that it has folded, and it may lag behind a controller that
answered earlier. Answers therefore carry read tokens, a client remembers the newest one of each
shard, and its queries demand them. A program that works for several callers, as the gateway does,
keeps their points apart by `on_behalf_of`: the points that one caller demands cost no other caller
a wait.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from anabranch.common.contracts import container_queries, membership, queries
from anabranch.common.contracts.base import Contract, ReadToken
from anabranch.common.contracts.container_queries import ExplainContainer
from anabranch.common.contracts.parked import ChangeParked, ListParked
from anabranch.common.contracts.place import place_of
from anabranch.common.contracts.queries import Query
from anabranch.common.errors import InvalidRequest, ReadTokenUnknown
from anabranch.common.model.hashing import SHARD_COUNT, shard_of

SEQUENCE_MAX = (1 << 63) - 1

_OUTSIDE = (
    queries.Locate,
    queries.ListContainers,
    queries.ListNodes,
    container_queries.PlacementChange,
    queries.DrainChange,
    ExplainContainer,
    membership.ListControllers,
    membership.ShowCluster,
    membership.ConfirmLosses,
    ListParked,
    ChangeParked,
)
"""Queries whose answers do not follow from domain events."""

Q = TypeVar("Q", bound=Query)


class ReadTokens:
    """The newest known point of each shard. A merge only ever moves a point forward."""

    def __init__(self, points: Iterable[ReadToken] = ()) -> None:
        self._sequences: dict[int, int] = {}
        self.merge(points)

    def merge(self, points: Iterable[ReadToken]) -> None:
        """Add these points. Order and repetition make no difference."""
        for point in points:
            if point.sequence > self._sequences.get(point.shard, 0):
                self._sequences[point.shard] = point.sequence

    def clear(self) -> None:
        """Forget all points."""
        self._sequences.clear()

    def forget(self, shard: int, sequence: int) -> bool:
        """Forget a point that proved wrong; return whether it was known here."""
        if self._sequences.get(shard) != sequence:
            return False
        del self._sequences[shard]
        return True

    def points(self, shards: Collection[int] | None = None) -> tuple[ReadToken, ...]:
        """Return the points of the shards (None: of all), sorted by shard."""
        return tuple(
            ReadToken(shard=shard, sequence=sequence)
            for shard, sequence in sorted(self._sequences.items())
            if shards is None or shard in shards
        )

    def demanded_by(self, query: Q) -> Q:
        """Return the query with the points known here of the shards that it reads."""
        merged = ReadTokens((*query.points(), *self.points(shards_read_by(query)))).points()
        if not merged:
            return query
        first, *others = merged
        return query.model_copy(update={"at_least": first, "also_at_least": tuple(others)})

    def __str__(self) -> str:
        return ",".join(f"{point.shard}:{point.sequence}" for point in self.points())

    @classmethod
    def parse(cls, text: str) -> "ReadTokens":
        """Parse the output of `str`, or "". Raises InvalidRequest."""
        points = [_parsed(part, text) for part in text.split(",") if part]
        if len(points) > SHARD_COUNT:
            raise _not_tokens(text)
        return cls(points)


_caller: ContextVar[ReadTokens | None] = ContextVar("anabranch-caller", default=None)


@contextmanager
def on_behalf_of(caller: ReadTokens) -> Iterator[None]:
    """Within the block, queries also demand the caller's points, and the caller learns new ones.

    Tasks that are started within the block belong to it.
    """
    before = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(before)


class Memory:
    """The points that one client has learned; joins them with those of the present caller."""

    def __init__(self) -> None:
        self._own = ReadTokens()

    def demanded_by(self, query: Q) -> Q:
        """See `ReadTokens.demanded_by`."""
        caller = _caller.get()
        demanding = self._own.demanded_by(query)
        return demanding if caller is None else caller.demanded_by(demanding)

    def forget(self, wrong: ReadTokenUnknown) -> bool:
        """Stop demanding a point that the cluster does not know; return whether this client did.

        A restore can take a cluster back behind points that its clients have seen.
        """
        shard, sequence = wrong.fields.get("shard"), wrong.fields.get("sequence")
        if not isinstance(shard, int) or not isinstance(sequence, int):
            return False
        return self._own.forget(shard, sequence)

    def learn(self, points: Iterable[ReadToken]) -> None:
        """Demand these points from now on."""
        learned = tuple(points)
        self._own.merge(learned)
        if (caller := _caller.get()) is not None:
            caller.merge(learned)


def points_in(answer: Contract) -> tuple[ReadToken, ...]:
    """The read tokens that an answer carries."""
    one: ReadToken | None = getattr(answer, "read_token", None)
    several: tuple[ReadToken, ...] = getattr(answer, "read_tokens", ())
    return several if one is None else (one, *several)


def shards_read_by(query: Query) -> Collection[int] | None:
    """The shards whose domain events determine the answer; None: possibly all of them."""
    if isinstance(query, _OUTSIDE):
        return ()
    place = place_of(query)
    if place.scope and place.part_name:
        return (shard_of(str(place)),)
    if place.scope and isinstance(query, queries.DescribeScope | queries.GetOperation):
        return (shard_of(place.scope),)
    return None


def _parsed(part: str, text: str) -> ReadToken:
    shard, _, sequence = part.partition(":")
    if not (_is_number(shard) and _is_number(sequence)):
        raise _not_tokens(text)
    point = ReadToken(shard=int(shard), sequence=int(sequence))
    if point.shard >= SHARD_COUNT or point.sequence > SEQUENCE_MAX:
        raise _not_tokens(text)
    return point


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _not_tokens(text: str) -> InvalidRequest:
    return InvalidRequest(
        "not a read token",
        remedy="send the value of an earlier answer unchanged",
        given=text[:80],
    )
