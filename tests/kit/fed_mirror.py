"""Mirrors in memory: as wiring builds them, and one that needs no followers."""

from collections.abc import Callable
from typing import TypeVar

from anabranch.common.contracts.base import ReadToken
from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.application import APPLICATION
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.scope.state import SCOPE
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.projections.transactions import TransactionMirror
from kit.loud import loud

M = TypeVar("M", bound=Mirror)


def nobody_listens(_fold: Fold) -> None:
    """An `on_fold` that does nothing."""


def transaction_mirror(store: EventStore) -> TransactionMirror:
    """One that knows nothing yet."""
    ids = SeededIds(0)
    return TransactionMirror(
        Repository(store, TRANSACTION, ids), Repository(store, APPLICATION, ids)
    )


def mirror_of(store: EventStore, on_fold: Callable[[Fold], None] = nobody_listens) -> Mirror:
    """A mirror of everything in the store, to be served."""
    return _built(Mirror, store, on_fold)


def fed_mirror(store: EventStore, on_fold: Callable[[Fold], None] = nobody_listens) -> "FedMirror":
    """One that nobody needs to serve."""
    return _built(FedMirror, store, on_fold)


def _built(kind: type[M], store: EventStore, on_fold: Callable[[Fold], None]) -> M:
    ids = SeededIds(0)
    return kind(
        store,
        Repository(store, SCOPE, ids),
        Repository(store, STREAM, ids),
        Repository(store, GROUP, ids),
        transactions=transaction_mirror(store),
        on_fold=on_fold,
        containment=loud(),
    )


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
