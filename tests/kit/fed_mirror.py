"""Mirrors in memory: as wiring builds them, and one that needs no followers."""

from collections.abc import Callable

from anabranch.common.contracts.base import ReadToken
from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.kinds import APPLICATIONS, TRANSACTIONS
from anabranch.controller.projections.family import Families
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.projections.transactions import TransactionMirror
from anabranch.controller.workflows.repositories import Repositories
from kit.loud import loud


def nobody_listens(_fold: Fold) -> None:
    """An `on_fold` that does nothing."""


def families_of(store: EventStore) -> Families:
    """Those of a mirror that knows nothing yet."""
    return Families(Repositories(store, SeededIds(0)))


def transaction_mirror(families: Families) -> TransactionMirror:
    """One that knows nothing yet."""
    return TransactionMirror(families[TRANSACTIONS], families[APPLICATIONS])


def mirror_of(
    store: EventStore,
    on_fold: Callable[[Fold], None] = nobody_listens,
    *,
    repositories: Repositories | None = None,
    containment: Containment | None = None,
) -> Mirror:
    """A mirror of everything in the store, to be served."""
    return Mirror(
        store,
        repositories or Repositories(store, SeededIds(0)),
        on_fold=on_fold,
        containment=containment or loud(),
    )


def fed_mirror(store: EventStore, on_fold: Callable[[Fold], None] = nobody_listens) -> "FedMirror":
    """One that nobody needs to serve."""
    repositories = Repositories(store, SeededIds(0))
    return FedMirror(store, repositories, on_fold=on_fold, containment=loud())


class FedMirror(Mirror):
    """A mirror that reads a shard whenever somebody waits for it, up to where he waits for."""

    async def at_least(self, point: ReadToken) -> None:
        """See `Mirror.at_least`."""
        shard, after = point.shard, self._reached[point.shard]
        async for message in self._store.scan(shard, f"ana.evt.{shard}.>", after):
            if message.sequence > point.sequence:
                break
            if message.sequence <= self._reached[shard]:
                continue  # somebody else reads, too
            fold = self._fold(message, ReadToken(shard=shard, sequence=message.sequence))
            self.folds += 1
            self._reached[shard] = message.sequence
            self._on_fold(fold)
