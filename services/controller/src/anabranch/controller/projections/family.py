"""All aggregates as folded so far, by kind and subject; unreadable ones are kept apart."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from anabranch.common.errors import AnabranchError, Corrupt
from anabranch.common.eventsourcing.message import KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.controller.domain.kinds import KINDS, Kind, kind_of
from anabranch.controller.workflows.repositories import Repositories

S = TypeVar("S")
E = TypeVar("E")


class Family(Generic[S]):
    """Aggregates of one kind, folded by `repository`. `working` are those with a next step."""

    def __init__(self, repository: Repository[S, Any]) -> None:
        self.repository = repository
        self.loaded: dict[str, Loaded[S]] = {}
        self.damaged: dict[str, AnabranchError] = {}
        self.working: set[str] = set()

    def readable(self) -> Iterator[Loaded[S]]:
        """All readable aggregates."""
        return (one for subject, one in self.loaded.items() if subject not in self.damaged)

    def get(self, subject: str) -> Loaded[S] | None:
        """The aggregate; None if it does not exist. Raises Corrupt if it cannot be read."""
        if subject in self.damaged:
            raise self.damaged[subject]
        return self.loaded.get(subject)

    def known(self, subject: str) -> Loaded[S] | None:
        """The aggregate; None also if it cannot be read."""
        return None if subject in self.damaged else self.loaded.get(subject)

    def keep_working(self, subject: str, *, has_work: bool) -> None:
        """Note whether the aggregate has a next step."""
        if has_work:
            self.working.add(subject)
        else:
            self.working.discard(subject)

    def forget(self, subject: str) -> Loaded[S] | None:
        """Remove the aggregate; returns its last state, if any."""
        self.damaged.pop(subject, None)
        self.working.discard(subject)
        return self.loaded.pop(subject, None)

    def leave(self, subject: str, before: Loaded[S] | None, error: AnabranchError) -> None:
        """Keep the aggregate as it was, and mark it as unreadable."""
        self.damaged[subject] = error
        self.working.discard(subject)
        if before is None:
            self.loaded.pop(subject, None)
        else:
            self.loaded[subject] = before

    def fold(self, message: EventMessage) -> tuple[S, S] | None:
        """Fold one more message; returns the states before and after, or None if unreadable."""
        subject = message.subject
        if subject in self.damaged and message.kind != KIND_SNAPSHOT:
            return None
        before = self.loaded.get(subject, Loaded(subject, self.repository.aggregate.initial))
        try:
            after = self.repository.fold(before, message)
        except Corrupt as error:
            self.damaged[subject] = error
            return None
        self.damaged.pop(subject, None)
        self.loaded[subject] = after
        return before.state, after.state


class Families:
    """A family for every kind: ``families[STREAMS]``."""

    def __init__(self, repositories: Repositories) -> None:
        self._by_name: dict[str, Family[Any]] = {
            kind.name: Family(repositories[kind]) for kind in KINDS
        }

    def __getitem__(self, kind: Kind[S, E]) -> Family[S]:
        return self._by_name[kind.name]

    def __iter__(self) -> Iterator[Family[Any]]:
        return iter(self._by_name.values())

    def of(self, subject: str) -> Family[Any] | None:
        """The family of the subject's aggregate; None if the subject belongs to no aggregate."""
        kind = kind_of(subject)
        return None if kind is None else self[kind]
