"""Known bugs of views, planted on purpose: the simulation must find each of them.

Each is a context manager under which views behave as if one line were missing or wrong.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.client.groups import updates as u
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Outcome, Performed, Refused
from anabranch.client.views import partition, saving, session
from anabranch.client.views.partition import PartitionView, SegmentShare
from anabranch.client.views.positions import position_key
from anabranch.client.views.rows import Row
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.model.table import RESERVED_KEYS
from anabranch.common.wire.table_columns import ANY
from kit.group_world import World
from kit.view_world import GROUP, SimTable, SimTableHandle, SimViewReader

Planted = Callable[[], AbstractContextManager[object]]
View = PartitionView[Any, Any]


def _conditions(wanted: Callable[[bytes, int], int]) -> AbstractContextManager[object]:
    real = PartitionView._update

    def update(self: View, changed: Sequence[tuple[bytes, bytes | None]]) -> StoredUpdate:
        made = real(self, changed)
        pairs = zip(made.keys, made.conditions, strict=True)
        return replace(made, conditions=[wanted(key, version) for key, version in pairs])

    return patch.object(PartitionView, "_update", update)


def positions_without_a_condition() -> AbstractContextManager[object]:
    """A process that was replaced moves the position back."""
    return _conditions(lambda key, version: ANY if key >= RESERVED_KEYS else version)


def rows_without_a_condition() -> AbstractContextManager[object]:
    """The changes of another segment's events are lost."""
    return _conditions(lambda key, version: version if key >= RESERVED_KEYS else ANY)


def nothing_skipped() -> AbstractContextManager[object]:
    """Events that the rows reflect are folded again."""
    return patch.object(PartitionView, "_skip_saved", lambda _: None)


def acknowledged_first() -> AbstractContextManager[object]:
    """The group's position gets ahead of the rows."""
    real = saving.save

    @contextmanager
    def planted() -> Iterator[None]:
        acks: list[Callable[[], None]] = []
        give = SimViewReader._consume

        async def consume(self: SimViewReader, reader: Any, own: Any) -> str:
            acks.append(reader.ack)
            return await give(self, reader, own)

        async def save(*given: Any) -> None:
            for ack in acks:
                if (owner := getattr(ack, "__self__", None)) is not None and not owner._closed:
                    ack()
            await real(*given)

        with patch.object(SimViewReader, "_consume", consume), patch.object(session, "save", save):
            yield

    return planted()


def unclear_means_performed() -> AbstractContextManager[object]:
    """An update without an answer counts as performed."""
    return patch.object(PartitionView, "unclear", PartitionView._end_step)


def position_saved_apart() -> AbstractContextManager[object]:
    """Rows and positions are saved by two updates."""
    real = SimTableHandle.update

    async def update(
        self: SimTableHandle, index: int, given: StoredUpdate
    ) -> "asyncio.Future[Outcome]":
        count = sum(key >= RESERVED_KEYS for key in given.keys)
        places = StoredUpdate(
            given.keys[:count], given.values[:count], given.conditions[:count], given.segment_number
        )
        if count == len(given.keys):
            return await real(self, index, places)
        rows = StoredUpdate(
            given.keys[count:], given.values[count:], given.conditions[count:], given.segment_number
        )
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            outcome = await (await real(self, index, rows))
        except OutcomeUnknown as error:
            told.set_exception(error)
            return told
        if isinstance(outcome, Refused):
            told.set_result(outcome._replace(entry=outcome.entry + count))
            return told
        return await real(self, index, places)

    return patch.object(SimTableHandle, "update", update)


def unchanged_rows_not_noted() -> AbstractContextManager[object]:
    """The position does not move over events that changed no row."""
    real = PartitionView.next_update

    def next_update(self: View) -> StoredUpdate | None:
        made = real(self)
        if made is not None and all(key >= RESERVED_KEYS for key in made.keys):
            self._end_step()
            return None
        return made

    return patch.object(PartitionView, "next_update", next_update)


def version_taken_from_the_refusal() -> AbstractContextManager[object]:
    """A refused update is repeated with the present version, and not folded again."""
    real = PartitionView.refused

    def refused(self: View, outcome: Refused) -> None:
        first = outcome.entry - len(self._sent.positions)
        if first < 0:
            real(self, outcome)
            return
        key = self._sent.rows[first][0]
        self._rows[key] = Row(outcome.version, self._rows[key].value)

    return patch.object(PartitionView, "refused", refused)


def positions_of_another_partition() -> AbstractContextManager[object]:
    """One position for all partitions of a process."""
    real = PartitionView.performed

    def performed(self: View, outcome: Performed) -> None:
        sent = self._sent.positions
        real(self, outcome)
        for segment, end in sent:
            _SHARED[segment] = max(end, _SHARED.get(segment, end))

    def skip(self: View) -> None:
        step = []
        for share in self._step:
            saved = _SHARED.get(share.segment)
            events = [e for e in share.events if saved is None or e[1].position >= saved]
            if events:
                step.append(share._replace(events=events))
        self._step = step

    @contextmanager
    def planted() -> Iterator[None]:
        _SHARED.clear()
        with (
            patch.object(PartitionView, "performed", performed),
            patch.object(PartitionView, "_skip_saved", skip),
        ):
            yield

    return planted()


_SHARED: dict[str, Any] = {}


def end_of_the_share_with_its_first_part() -> AbstractContextManager[object]:
    """The first step of a divided share saves the position behind all of it."""

    def divided(
        shares: Sequence[SegmentShare[Any]], count: int
    ) -> tuple[list[SegmentShare[Any]], list[SegmentShare[Any]]]:
        first, rest = real(shares, count)
        if rest and first and first[-1].segment == rest[0].segment:
            first[-1] = first[-1]._replace(end=rest[0].end)
        return first, rest

    real = partition._divided_at
    return patch.object(partition, "_divided_at", divided)


def positions_removed_with_their_segment() -> AbstractContextManager[object]:
    """A segment's position rows go when the group has completed the segment."""
    real = SimTable.__init__

    def init(self: SimTable, world: World, *given: Any) -> None:
        real(self, world, *given)
        applied = world.referee.applied

        def watched(before: Any, update: u.AnyUpdate, after: Any) -> None:
            applied(before, update, after)
            if isinstance(update, u.Completed) and after is not before:
                for each in self.partitions:
                    each.rows.pop(position_key(GROUP, update.at.segment), None)

        world.referee.applied = watched  # type: ignore[method-assign]

    return patch.object(SimTable, "__init__", init)


VIEW_BUGS: Mapping[str, Planted] = {
    "positions without a condition": positions_without_a_condition,
    "rows without a condition": rows_without_a_condition,
    "nothing skipped": nothing_skipped,
    "acknowledged first": acknowledged_first,
    "unclear means performed": unclear_means_performed,
    "position saved apart": position_saved_apart,
    "unchanged rows not noted": unchanged_rows_not_noted,
    "version taken from the refusal": version_taken_from_the_refusal,
    "positions of another partition": positions_of_another_partition,
    "end of the share with its first part": end_of_the_share_with_its_first_part,
    "positions removed with their segment": positions_removed_with_their_segment,
}
