"""Known bugs of key-value tables in the controller, planted on purpose: the simulation must find
each of them. Each is a context manager, as in `planted_control`.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.kinds import TABLES
from anabranch.controller.domain.kv_table import decide, events, state
from anabranch.controller.domain.kv_table.events import PlannedPartition, TableEvent
from anabranch.controller.domain.kv_table.state import KvTable, TableStep
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.workflows import delete_table
from anabranch.controller.workflows.context import (
    WorkContext,
    table_membership_of,
    table_stamp_of,
)
from anabranch.controller.workflows.steps import STEPS

Perform = Callable[[WorkContext, Loaded[KvTable]], Awaitable[TableEvent]]
Planted = Callable[[], AbstractContextManager[object]]


def _instead(step: TableStep, perform: Perform) -> AbstractContextManager[object]:
    return patch.dict(STEPS[TABLES.name], {step: perform})


def created_by_word() -> AbstractContextManager[object]:
    """A table is said to be created before its partitions are."""

    async def perform(_context: WorkContext, _loaded: Loaded[KvTable]) -> TableEvent:
        return events.TableCreated()

    return _instead(TableStep.CREATE_PARTITIONS, perform)


def sealed_by_word() -> AbstractContextManager[object]:
    """A table is said to be sealed, and its partitions go on taking updates."""

    async def perform(_context: WorkContext, _loaded: Loaded[KvTable]) -> TableEvent:
        return events.TableSealed()

    return _instead(TableStep.SEAL_PARTITIONS, perform)


@contextmanager
def joined_by_word() -> Iterator[None]:
    """A table is said to belong to its scope, whose gate knows nothing of it, and whose deletion
    looks at the gate alone."""

    async def perform(_context: WorkContext, _loaded: Loaded[KvTable]) -> TableEvent:
        return events.TableJoinedScope()

    async def nobody(*_given: Any) -> Mapping[Any, Any]:
        return {}

    with _instead(TableStep.JOIN_SCOPE, perform), patch.object(Mirror, "live_parts", nobody):
        yield


def half_deleted() -> AbstractContextManager[object]:
    """Only the first partition is deleted."""

    async def perform(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
        first = loaded.state.all_names()[0]
        await context.stores.delete_segment(first, table_stamp_of(loaded))
        await context.gates.leave(table_membership_of(loaded.state))
        return events.TableDeleted()

    return _instead(TableStep.DELETE_PARTITIONS, perform)


def member_for_ever() -> AbstractContextManager[object]:
    """A deleted table stays a member of its scope."""

    async def perform(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
        for name in loaded.state.all_names():
            await context.stores.delete_segment(name, table_stamp_of(loaded))
        return events.TableDeleted()

    return _instead(TableStep.DELETE_PARTITIONS, perform)


def numbers_reused() -> AbstractContextManager[object]:
    """The partitions of every incarnation are numbered from 0."""
    real = decide._planned

    def planned(count: int, _first_number: int) -> tuple[PlannedPartition, ...]:
        return real(count, 0)

    return patch.object(decide, "_planned", planned)


def numbers_forgotten() -> AbstractContextManager[object]:
    """A tombstone does not keep the highest segment number."""
    real = state._tombstone
    return patch.object(state, "_tombstone", lambda table: replace(real(table), highest_number=-1))


def stamp_not_raised() -> AbstractContextManager[object]:
    """A deletion carries the stamp of the creation, not its own."""
    return patch.object(
        delete_table, "table_stamp_of", lambda loaded: Stamp(loaded.state.incarnation, 1)
    )


TABLE_BUGS: dict[str, Planted] = {
    "created by word": created_by_word,
    "sealed by word": sealed_by_word,
    "joined by word": joined_by_word,
    "half deleted": half_deleted,
    "member for ever": member_for_ever,
    "numbers reused": numbers_reused,
    "numbers forgotten": numbers_forgotten,
    "stamp not raised": stamp_not_raised,
}
