"""The repositories, which load and change each kind of aggregate."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import IdSource
from anabranch.controller.domain.kinds import KINDS, Kind, kind_of

S = TypeVar("S")
E = TypeVar("E")


def nothing_known(_subject: str) -> Loaded[Any] | None:
    """Returns None: no aggregate is kept in memory."""
    return None


class Repositories:
    """A repository for every kind: ``repositories[STREAMS]``.

    `known(subject)` is an aggregate's state in memory, on which decisions are tried first.
    """

    def __init__(
        self,
        store: EventStore,
        ids: IdSource,
        known: Callable[[str], Loaded[Any] | None] = nothing_known,
    ) -> None:
        self._by_name: dict[str, Repository[Any, Any]] = {
            kind.name: Repository(store, kind.aggregate, ids, known) for kind in KINDS
        }

    def __getitem__(self, kind: Kind[S, E]) -> Repository[S, E]:
        return self._by_name[kind.name]

    def __iter__(self) -> Iterator[Repository[Any, Any]]:
        return iter(self._by_name.values())

    def of(self, subject: str) -> Repository[Any, Any] | None:
        """The repository of the subject's aggregate; None for a subject of no aggregate."""
        kind = kind_of(subject)
        return None if kind is None else self[kind]
